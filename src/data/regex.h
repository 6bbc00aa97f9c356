#pragma once
// Matches of a regular expression in valid UTF-8, one after another, as Hugging Face's tokenizers finds them.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

struct Range {
  size_t begin = 0, end = 0;
};

/// Immutable; may be used from several threads.
class Regex {
 public:
  /// `pattern` in Oniguruma's dialect. Throws an input error opening with `where` if it cannot be followed.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  ~Regex();

  /// Every match, leftmost first, none overlapping; an empty one does not follow another match at once. Throws a run
  /// error where the engine gives up.
  void find_all(std::string_view text, std::vector<Range>& out) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace strata::data
