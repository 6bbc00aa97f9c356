#include "data/added_tokens.h"

#include <algorithm>

#include "data/unicode.h"
#include "data/utf8.h"

namespace strata::data {

namespace {

size_t pair_of(char first, char second) {
  return static_cast<size_t>(static_cast<unsigned char>(first)) << 8 | static_cast<unsigned char>(second);
}

// The character that ends right before `end`; length 0 if there is none, or bytes that are no UTF-8.
Character character_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= std::min<size_t>(4, end); ++length) {
    const std::string_view last = text.substr(end - length, length);
    if ((last.front() & '\xC0') == '\x80') continue;
    if (valid_utf8_prefix(last) != length) break;
    const Character character = decode_utf8(last.data());
    return character.length == length ? character : Character{};
  }
  return {};
}

Character character_at(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at, 4);
  if (rest.empty()) return {};
  const size_t valid = valid_utf8_prefix(rest);
  return valid == 0 ? Character{} : decode_utf8(rest.data());
}

}  // namespace

AddedTokenFinder::AddedTokenFinder() : nodes_(1), begins_(1024) {}

int32_t AddedTokenFinder::child(int32_t node, char byte) const {
  for (int32_t c = nodes_[static_cast<size_t>(node)].first_child; c >= 0;
       c = nodes_[static_cast<size_t>(c)].next_sibling)
    if (nodes_[static_cast<size_t>(c)].byte == byte) return c;
  return -1;
}

void AddedTokenFinder::add(const AddedToken& token, std::string_view form) {
  if (form.empty()) return;
  int32_t node = 0;
  for (const char byte : form) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({-1, -1, nodes_[static_cast<size_t>(node)].first_child, byte});
      nodes_[static_cast<size_t>(node)].first_child = next;
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
  const size_t first = form.size() > 1 ? pair_of(form[0], form[1]) : pair_of(form[0], 0);
  const size_t last = form.size() > 1 ? first : pair_of(form[0], '\xFF');
  for (size_t pair = first; pair <= last; ++pair) begins_[pair / 64] |= uint64_t{1} << pair % 64;
}

bool AddedTokenFinder::longest(std::string_view text, size_t at, int32_t& token, size_t& end) const {
  token = -1;
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node < 0) break;
    if (nodes_[static_cast<size_t>(node)].token >= 0) {
      token = nodes_[static_cast<size_t>(node)].token;
      end = i + 1;
    }
  }
  return token >= 0;
}

void AddedTokenFinder::split(std::string_view text, std::vector<Part>& out) const {
  const CharacterTable& table = CharacterTable::get();
  size_t done = 0;  // parts reach up to here
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const size_t pair = pair_of(text[at], at + 1 < text.size() ? text[at + 1] : '\0');
    int32_t found = -1;
    size_t found_end = 0;
    if ((begins_[pair / 64] >> pair % 64 & 1) == 0 || !longest(text, at, found, found_end)) {
      ++at;
      continue;
    }
    const Flags& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at, end = found_end;
    at = found_end;
    if (token.single_word) {
      const Character before = character_before(text, begin), behind = character_at(text, end);
      if ((before.length > 0 && table.is_word(before.code)) || (behind.length > 0 && table.is_word(behind.code)))
        continue;
    }
    if (token.lstrip) {
      while (begin > done) {
        const Character before = character_before(text, begin);
        if (before.length == 0 || !table.is_space(before.code)) break;
        begin -= before.length;
      }
      begin = std::max(begin, done);
    }
    if (token.rstrip) {
      for (Character next = character_at(text, end); next.length > 0 && table.is_space(next.code);
           next = character_at(text, end))
        end += next.length;
    }
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done != text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace strata::data
