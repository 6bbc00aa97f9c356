#include "data/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/unicode.h"

namespace strata::data {

namespace {

// A part of the piece at hand, and whether the pattern matched there.
struct Part {
  Range range;
  bool match;
};

// Every match and what lies between; together they cover the text.
void cover(size_t length, const std::vector<Range>& matches, std::vector<Part>& out) {
  size_t before = 0;
  for (const Range& match : matches) {
    if (before != match.begin) out.push_back({{before, match.begin}, false});
    out.push_back({match, true});
    before = match.end;
  }
  if (before != length) out.push_back({{before, length}, false});
}

// Joins the parts as the behavior says. Empty ones (of empty matches) are left out last: until then they count. `kept` is
// working memory.
void join(const std::vector<Part>& parts, SplitBehavior behavior, size_t offset, std::vector<Range>& kept,
          std::vector<Range>& out) {
  kept.clear();
  bool matched = false;  // whether the part before was a match
  switch (behavior) {
    case SplitBehavior::isolated:
      for (const Part& part : parts) kept.push_back(part.range);
      break;
    case SplitBehavior::removed:
      for (const Part& part : parts)
        if (!part.match) kept.push_back(part.range);
      break;
    case SplitBehavior::contiguous:
      for (const Part& part : parts) {
        if (part.match == matched && !kept.empty())
          kept.back().end = part.range.end;
        else
          kept.push_back(part.range);
        matched = part.match;
      }
      break;
    case SplitBehavior::merged_with_previous:
      for (const Part& part : parts) {
        if (part.match && !matched && !kept.empty())
          kept.back().end = part.range.end;
        else
          kept.push_back(part.range);
        matched = part.match;
      }
      break;
    case SplitBehavior::merged_with_next:
      for (size_t i = parts.size(); i-- > 0;) {
        const Part& part = parts[i];
        if (part.match && !matched && !kept.empty())
          kept.back().begin = part.range.begin;
        else
          kept.push_back(part.range);
        matched = part.match;
      }
      std::reverse(kept.begin(), kept.end());
      break;
  }
  for (const Range& range : kept)
    if (range.end > range.begin) out.push_back({range.begin + offset, range.end + offset});
}

// Where the scanner's words end; they cover the text.
void scan(const Scanner& scanner, std::string_view text, std::vector<Range>& out) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const next = scanner.next(at, end);
    out.push_back({static_cast<size_t>(at - text.data()), static_cast<size_t>(next - text.data())});
    at = next;
  }
}

template <typename Is>
void find_characters(std::string_view text, Is is, std::vector<Range>& out) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text.data() + at);
    if (is(character.code)) out.push_back({at, at + character.length});
    at += character.length;
  }
}

void find_matches(const Step::Pattern& step, std::string_view text, std::vector<Range>& out) {
  if (const auto* scanner = std::get_if<Scanner>(&step.pattern)) {
    scan(*scanner, text, out);
  } else {
    std::get<Regex>(step.pattern).find_all(text, out);
  }
}

// A scanner matches all of the text: nothing is left out, and nothing is joined.
bool cuts_by_scanner_alone(const Step::Pattern& step) {
  return std::holds_alternative<Scanner>(step.pattern) &&
         (step.behavior == SplitBehavior::isolated || (step.behavior == SplitBehavior::removed && step.invert));
}

// The text at hand, and the pieces that it has been cut into.
struct State {
  std::string_view text;
  std::vector<Range> pieces;
  std::string& buffer;      // the text, once it is no longer the one given
  bool characters = false;  // whether it is characters that stand for bytes

  std::string_view piece(const Range& range) const { return text.substr(range.begin, range.end - range.begin); }

  // Replaces the text by the pieces that edit(piece, new text) writes.
  template <typename Edit>
  void rewrite(Edit edit) {
    std::string written;
    written.reserve(text.size() + pieces.size());
    for (Range& range : pieces) {
      const size_t begin = written.size();
      edit(piece(range), written);
      range = {begin, written.size()};
    }
    buffer = std::move(written);
    text = buffer;
  }

  // Replaces every piece by the parts that split(piece, matches) and the behavior leave of it.
  template <typename Find>
  void split(Find find, SplitBehavior behavior, bool invert) {
    std::vector<Range> next, matches, kept;
    next.reserve(pieces.size());
    std::vector<Part> parts;
    for (const Range& range : pieces) {
      matches.clear();
      parts.clear();
      find(piece(range), matches);
      if (matches.empty() && !(invert && behavior == SplitBehavior::removed)) {  // one part, whatever the behavior
        next.push_back(range);
        continue;
      }
      cover(range.end - range.begin, matches, parts);
      if (invert)
        for (Part& part : parts) part.match = !part.match;
      join(parts, behavior, range.begin, kept, next);
    }
    pieces = std::move(next);
  }
};

}  // namespace

PreTokenizer::PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {
  int byte_levels = 0;
  for (const Step& step : steps_) {
    if (const auto* level = std::get_if<Step::ByteLevel>(&step.what)) {
      ++byte_levels;
      lossless_ = lossless_ && !level->add_prefix_space;
    } else if (const auto* pattern = std::get_if<Step::Pattern>(&step.what)) {
      if (pattern->behavior == SplitBehavior::removed && !cuts_by_scanner_alone(*pattern)) lossless_ = false;
    } else if (const auto* punctuation = std::get_if<Step::Punctuation>(&step.what)) {
      if (punctuation->behavior == SplitBehavior::removed) lossless_ = false;
    }
  }
  STRATA_CHECK(byte_levels == 1);

  static const Scanner gpt2 = Scanner::gpt2();
  if (const auto* level = std::get_if<Step::ByteLevel>(&steps_.back().what); level && !level->add_prefix_space) {
    if (steps_.size() == 1 && level->use_regex) only_scanner_ = &gpt2;
    if (steps_.size() == 2 && !level->use_regex)
      if (const auto* pattern = std::get_if<Step::Pattern>(&steps_.front().what))
        if (cuts_by_scanner_alone(*pattern)) only_scanner_ = &std::get<Scanner>(pattern->pattern);
  }
}

std::string_view PreTokenizer::cut_by_steps(std::string_view text, std::string& buffer,
                                            std::vector<Range>& ranges) const {
  if (text.empty()) return text;
  static const Scanner gpt2 = Scanner::gpt2();
  const CharacterTable& table = CharacterTable::get();
  State state{text, {{0, text.size()}}, buffer};
  for (const Step& step : steps_) {
    if (const auto* level = std::get_if<Step::ByteLevel>(&step.what)) {
      if (level->add_prefix_space)
        state.rewrite([](std::string_view piece, std::string& out) {
          if (!piece.starts_with(' ')) out += ' ';
          out += piece;
        });
      if (level->use_regex)
        state.split([](std::string_view piece, std::vector<Range>& out) { scan(gpt2, piece, out); },
                    SplitBehavior::isolated, false);
      if (&step != &steps_.back()) {
        state.rewrite([](std::string_view piece, std::string& out) { append_byte_characters(piece, out); });
        state.characters = true;
      }
    } else if (const auto* pattern = std::get_if<Step::Pattern>(&step.what)) {
      state.split([pattern](std::string_view piece, std::vector<Range>& out) { find_matches(*pattern, piece, out); },
                  pattern->behavior, pattern->invert);
    } else if (const auto* digits = std::get_if<Step::Digits>(&step.what)) {
      const auto is_number = [&table](char32_t code) { return table.is_number(code); };
      state.split([&](std::string_view piece, std::vector<Range>& out) { find_characters(piece, is_number, out); },
                  digits->individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false);
    } else {
      const auto& punctuation = std::get<Step::Punctuation>(step.what);
      const auto is_sign = [&table](char32_t code) { return table.is_punctuation(code); };
      state.split([&](std::string_view piece, std::vector<Range>& out) { find_characters(piece, is_sign, out); },
                  punctuation.behavior, false);
    }
  }
  if (state.characters)
    state.rewrite([](std::string_view piece, std::string& out) {
      const bool known = append_bytes(piece, out);
      STRATA_CHECK(known, "a character that stands for no byte");
    });
  ranges = std::move(state.pieces);
  return state.text;
}

}  // namespace strata::data
