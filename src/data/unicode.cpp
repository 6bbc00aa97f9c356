#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/utf8.h"

namespace strata::data {

namespace {

struct Addition {
  char32_t first, last;
  int category;
};
constexpr Addition additions[] = {
#include "data/unicode_additions.inc"
};

struct CodeRange {
  char32_t first, last;
};
constexpr CodeRange after_9[] = {
#include "data/unicode_after_9.inc"
};

bool white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

}  // namespace

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

CharacterTable::CharacterTable() : bits_(size) {
  const auto set = [this](char32_t code, int category) {
    uint8_t bits = static_cast<uint8_t>(category);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) bits |= letter;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) bits |= number;
    if (white_space(code)) bits |= space;
    bits_[code] = bits;
  };
  for (char32_t code = 0; code < size; ++code)
    set(code, static_cast<int>(utf8proc_category(static_cast<utf8proc_int32_t>(code))));
  for (const Addition& addition : additions)
    for (char32_t code = addition.first; code <= addition.last; ++code)
      if (category(code) == UTF8PROC_CATEGORY_CN) set(code, addition.category);
}

const CharacterTable& CharacterTable::get() {
  static const CharacterTable table;
  return table;
}

bool CharacterTable::is_punctuation(char32_t code) const {
  if (code < 0x80)
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  return category(code) >= UTF8PROC_CATEGORY_PC && category(code) <= UTF8PROC_CATEGORY_PO;
}

bool CharacterTable::is_word(char32_t code) const {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_SO:  // the letters in circles and squares are Alphabetic
      return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
             (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
    case UTF8PROC_CATEGORY_CF: return code == 0x200C || code == 0x200D;
    default: return is_letter(code);
  }
}

namespace {

// Below this, a character stays as it is in the normal form, and begins a stretch of its own: nothing before it can
// change with it.
char32_t first_that_may_change(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: return 0x300;
    case NormalForm::nfd: return 0xC0;
    default: return 0xA0;
  }
}

// Whether a character is newer than the Unicode of normal forms: nothing combines with it.
bool is_newer(char32_t code) {
  const auto within = [code](const auto& ranges) {
    const auto* const at = std::partition_point(std::begin(ranges), std::end(ranges),
                                                [code](const auto& range) { return range.last < code; });
    return at != std::end(ranges) && at->first <= code;
  };
  return within(after_9) || within(additions);
}

// A stretch that begins with its only unchanging character, if it has one.
class Stretch {
 public:
  explicit Stretch(NormalForm form)
      : composes_(form == NormalForm::nfc || form == NormalForm::nfkc),
        options_(static_cast<utf8proc_option_t>(
            UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
            (form == NormalForm::nfkc || form == NormalForm::nfkd ? UTF8PROC_COMPAT : 0))) {}

  void add(char32_t code) {
    utf8proc_int32_t parts[32];
    int bound = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, std::size(parts), options_, &bound);
    STRATA_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      codes_.push_back({parts[i], static_cast<int>(utf8proc_get_property(parts[i])->combining_class)});
  }

  void write(std::string& out) {
    // Canonical order: runs of combining characters sorted by class, equal ones as they came.
    for (auto at = codes_.begin(); at != codes_.end();) {
      if (at->combining == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, codes_.end(), [](const Code& c) { return c.combining == 0; });
      std::stable_sort(at, end, [](const Code& a, const Code& b) { return a.combining < b.combining; });
      at = end;
    }
    plain_.clear();
    for (const Code& code : codes_) plain_.push_back(code.code);
    codes_.clear();
    if (composes_) {
      const utf8proc_ssize_t length =
          utf8proc_normalize_utf32(plain_.data(), static_cast<utf8proc_ssize_t>(plain_.size()),
                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      STRATA_CHECK(length >= 0);
      plain_.resize(static_cast<size_t>(length));
    }
    for (const utf8proc_int32_t code : plain_) append_utf8(static_cast<char32_t>(code), out);
  }

 private:
  struct Code {
    utf8proc_int32_t code;
    int combining;
  };
  bool composes_;
  utf8proc_option_t options_;
  std::vector<Code> codes_;
  std::vector<utf8proc_int32_t> plain_;
};

}  // namespace

void normalize(NormalForm form, std::string_view text, std::string& out) {
  const char32_t changing = first_that_may_change(form);
  Stretch stretch(form);
  while (!text.empty()) {
    const char* at = text.data();
    const char* const end = at + valid_utf8_prefix(text);
    const char* copied = at;  // all before is in `out`
    const char* before = at;  // the character before `at`, if that is one and is not in `out`
    while (at < end) {
      const Character character = decode_utf8(at);
      if (character.code < changing) {
        before = at;
        at += character.length;
        continue;
      }
      out.append(copied, before);
      for (at = before; at < end;) {
        const Character next = decode_utf8(at);
        if (next.code < changing && at != before) break;
        if (is_newer(next.code)) {
          stretch.write(out);
          out.append(at, next.length);
        } else {
          stretch.add(next.code);
        }
        at += next.length;
      }
      stretch.write(out);
      copied = before = at;
    }
    out.append(copied, end);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty()) {
      out.push_back(text.front());
      text.remove_prefix(1);
    }
  }
}

}  // namespace strata::data
