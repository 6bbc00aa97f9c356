#include "data/bpe_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "files/json.h"

namespace strata::data {

namespace {

uint32_t hash_of(std::string_view token) { return static_cast<uint32_t>(std::hash<std::string_view>()(token)); }

}  // namespace

BpeVocabulary::BpeVocabulary(std::string where, size_t tokens)
    : where_(std::move(where)), slots_(std::bit_ceil(2 * tokens + 2)) {
  tokens_.reserve(tokens);
}

const BpeVocabulary::Slot& BpeVocabulary::slot_of(std::string_view token, uint32_t hash) const {
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.token < 0 || (slot.hash == hash && tokens_[static_cast<size_t>(slot.token)].text == token)) return slot;
  }
}

void BpeVocabulary::add(std::string token, int64_t id) {
  STRATA_CHECK(2 * tokens_.size() < slots_.size());
  if (id < 0 || id >= most_ids)
    throw input_error("{}: token {} has the id {}; ids are 0 to {}", where_, files::shown(token), id, most_ids - 1);
  const auto slot = static_cast<size_t>(id);
  if (slot >= token_of_id_.size()) token_of_id_.resize(std::max(slot + 1, tokens_.capacity()), -1);
  if (token_of_id_[slot] >= 0)
    throw input_error("{}: the tokens {} and {} have the same id, {}", where_,
                      files::shown(tokens_[static_cast<size_t>(token_of_id_[slot])].text), files::shown(token), id);
  const uint32_t hash = hash_of(token);
  const Slot& place = slot_of(token, hash);
  if (place.token >= 0) throw input_error("{}: the token {} is given twice", where_, files::shown(token));
  token_of_id_[slot] = static_cast<int32_t>(tokens_.size());
  slots_[static_cast<size_t>(&place - slots_.data())] = {hash, static_cast<int32_t>(tokens_.size())};
  tokens_.push_back({std::move(token), static_cast<int32_t>(id)});
}

int32_t BpeVocabulary::id_of(std::string_view token) const {
  const Slot& slot = slot_of(token, hash_of(token));
  return slot.token < 0 ? -1 : tokens_[static_cast<size_t>(slot.token)].id;
}

namespace {

// No UTF-8 has C0, C1 and F5 to FF; F1 to F4 begin characters that hardly any text has (planes 4 and up). Vocabularies made
// from text alone may lack them.
bool occurs_in_text(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF1; }

}  // namespace

Bpe::Model make_model(const BpeVocabulary& vocabulary, const std::vector<WrittenMerge>& merges,
                      const std::function<std::string(size_t)>& merge_place, const std::string& unknown) {
  Bpe::Model model;
  model.name = vocabulary.where();
  model.merges.reserve(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto id = [&](std::string_view token, bool result) {
      const int32_t found = vocabulary.id_of(token);
      if (found < 0)
        throw input_error(
            "{}: the merge of {} and {} {} {}, which is no token of {}: merges and vocabulary do not belong together",
            merge_place(i), files::shown(merges[i].left), files::shown(merges[i].right), result ? "makes" : "takes",
            files::shown(token), vocabulary.where());
      return found;
    };
    joined.assign(merges[i].left).append(merges[i].right);
    const int32_t left = id(merges[i].left, false), right = id(merges[i].right, false);
    model.merges.push_back({left, right, id(joined, true)});
  }

  if (!unknown.empty()) {
    model.unknown = vocabulary.id_of(unknown);
    if (model.unknown < 0)
      throw input_error("{}: model.unk_token, {}, is no token of the vocabulary", vocabulary.where(),
                        files::shown(unknown));
  }
  std::string missing;
  int count = 0;
  for (int byte = 0; byte < 256; ++byte) {
    int32_t& id = model.bytes[static_cast<size_t>(byte)];
    id = vocabulary.id_of(byte_character(static_cast<unsigned char>(byte)));
    if (id >= 0 || !occurs_in_text(byte)) continue;
    if (++count <= 4) missing += fmt::format("{}{:02X}", missing.empty() ? "" : ", ", byte);
  }
  if (count > 0 && model.unknown < 0)
    throw input_error(
        "{}: {} of the 256 bytes have no token ({}{}), and there is none for what is unknown: text with them could not "
        "be "
        "encoded; is this a byte-level vocabulary?",
        vocabulary.where(), count, missing, count > 4 ? ", ..." : "");
  return model;
}

}  // namespace strata::data
