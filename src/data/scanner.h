#pragma once
// The patterns by which well-known byte-level BPE tokenizers cut text into words, as scanners written by hand: each
// takes one match after another, as a regular-expression engine would, in one pass. They match everywhere: their words
// join to the whole text.

#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::data {

class CharacterTable;

class Scanner {
 public:
  /// GPT-2's pattern, which the pre-tokenizer ByteLevel brings along:
  ///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  static Scanner gpt2();

  /// The scanner of a pattern as tokenizer.json spells it, if there is one: GPT-2's, or the family of GPT-4's, Llama 3's
  /// and Qwen 2's, which differ in how many digits make a word (in GPT-4's and Llama 3's three, in Qwen's one):
  ///   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  static std::optional<Scanner> of_pattern(std::string_view pattern);

  /// End of the word that begins at `at`; `at` < `end`, valid UTF-8 between them, and nothing behind `end` is looked at.
  const char* next(const char* at, const char* end) const {
    return digits_ < 0 ? gpt2_word(at, end) : gpt4_word(at, end);
  }

 private:
  explicit Scanner(int digits);
  const char* gpt2_word(const char* at, const char* end) const;
  const char* gpt4_word(const char* at, const char* end) const;

  const CharacterTable* table_;
  int digits_;  // digits in a word at most, 0 any number; -1: GPT-2's pattern
};

}  // namespace strata::data
