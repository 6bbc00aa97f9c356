#pragma once
// How text is cut into the pieces that BPE merges within: the pre_tokenizer of a tokenizer.json.

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/regex.h"
#include "data/scanner.h"

namespace strata::data {

/// What becomes of the matches of a pattern and of what lies between them.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// One step: cuts every piece that the steps before it have left.
struct Step {
  struct ByteLevel {
    bool add_prefix_space = true;  ///< a space in front of every piece that begins with none
    bool use_regex = true;         ///< cut by GPT-2's pattern
  };
  struct Pattern {
    std::variant<Scanner, Regex> pattern;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;  ///< take what lies between the matches for matches
  };
  struct Digits {
    bool individual = false;  ///< every number character by itself; else runs of them
  };
  struct Punctuation {
    SplitBehavior behavior = SplitBehavior::isolated;
  };
  std::variant<ByteLevel, Pattern, Digits, Punctuation> what;
};

/// Steps in order, among which there is one ByteLevel: behind it, text is the characters that stand for its bytes, and
/// steps that follow see those. Immutable; may be used from several threads.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<Step> steps);

  /// Calls piece(bytes) for each piece of `text`, in order. `text` is valid UTF-8; pieces are bytes (of the text, not
  /// characters that stand for them), good until the call returns, and never empty.
  template <typename Piece>
  void cut(std::string_view text, Piece&& piece) const {
    if (only_scanner_) {
      const char* const end = text.data() + text.size();
      for (const char* at = text.data(); at < end;) {
        const char* const next = only_scanner_->next(at, end);
        piece(std::string_view(at, static_cast<size_t>(next - at)));
        at = next;
      }
      return;
    }
    std::string buffer;
    std::vector<Range> ranges;
    const std::string_view bytes = cut_by_steps(text, buffer, ranges);
    for (const Range& range : ranges) piece(bytes.substr(range.begin, range.end - range.begin));
  }

  /// Whether the pieces join to the text, whatever it is.
  bool lossless() const { return lossless_; }

 private:
  std::string_view cut_by_steps(std::string_view text, std::string& buffer, std::vector<Range>& ranges) const;

  std::vector<Step> steps_;
  const Scanner* only_scanner_ = nullptr;  // if the steps come to no more than that
  bool lossless_ = true;
};

}  // namespace strata::data
