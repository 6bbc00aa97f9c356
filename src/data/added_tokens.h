#pragma once
// Tokens that are read out of the text as they stand, before it is cut into words: added_tokens of a tokenizer.json.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  ///< only where no word character stands at either side
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< takes the white space behind it along
  bool normalized = false;   ///< looked for in the text after normalising, in normalised form
  bool special = false;
};

/// Finds tokens in texts. Immutable; may be used from several threads.
class AddedTokenFinder {
 public:
  AddedTokenFinder();

  /// Throws nothing for empty forms: they are never found. `form` is what to look for.
  void add(const AddedToken& token, std::string_view form);

  bool empty() const { return tokens_.empty(); }

  struct Part {
    size_t begin = 0, end = 0;
    int32_t id = -1;  ///< of the token, or -1: text between tokens
  };
  /// The text in parts: at each place the longest token, from left to right.
  void split(std::string_view text, std::vector<Part>& out) const;

 private:
  struct Node {
    int32_t token = -1;  // that ends here
    int32_t first_child = -1, next_sibling = -1;
    char byte = 0;
  };
  struct Flags {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  int32_t child(int32_t node, char byte) const;
  bool longest(std::string_view text, size_t at, int32_t& token, size_t& end) const;

  std::vector<Node> nodes_;  // a tree of bytes, its root first
  std::vector<Flags> tokens_;
  std::vector<uint64_t> begins_;  // a bit for each pair of bytes that begins a token
};

}  // namespace strata::data
