#include "data/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <regex>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/inputs.h"
#include "data/utf8.h"

namespace strata::data {

namespace {

constexpr std::string_view space_sign = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// Silences the library's log, which it keeps for the whole process: 0 info, 1 warning, 2 error.
constexpr const char* log_level = "2";

// --- What the public interface of the library does not tell: fields of the model file (Protocol Buffers wire format).

struct Field {
  uint64_t number = 0, value = 0;
  std::string_view bytes;
};

bool read_varint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool read_field(std::string_view& in, Field& field) {
  uint64_t tag = 0;
  if (in.empty() || !read_varint(in, tag)) return false;
  field = {tag >> 3, 0, {}};
  uint64_t length = 0;
  switch (tag & 7) {
    case 0: return read_varint(in, field.value);
    case 1: length = 8; break;
    case 2:
      if (!read_varint(in, length)) return false;
      break;
    case 5: length = 4; break;
    default: return false;
  }
  if (length > in.size()) return false;
  field.bytes = in.substr(0, length);
  in.remove_prefix(length);
  return true;
}

struct ModelFacts {
  uint64_t type = 1;  // 1 unigram, 2 BPE, 3 word, 4 characters
  bool byte_fallback = false, space_is_suffix = false;
  bool normalises = false, adds_prefix = true, drops_spaces = true, marks_spaces = true;
};

ModelFacts read_facts(std::string_view model) {
  ModelFacts facts;
  for (Field field; read_field(model, field);) {
    std::string_view message = field.bytes;
    if (field.number == 2) {  // TrainerSpec
      for (Field f; read_field(message, f);) {
        if (f.number == 3) facts.type = f.value;
        if (f.number == 24) facts.space_is_suffix = f.value != 0;
        if (f.number == 35) facts.byte_fallback = f.value != 0;
      }
    } else if (field.number == 3) {  // NormalizerSpec
      for (Field f; read_field(message, f);) {
        if (f.number == 2) facts.normalises = !f.bytes.empty();
        if (f.number == 3) facts.adds_prefix = f.value != 0;
        if (f.number == 4) facts.drops_spaces = f.value != 0;
        if (f.number == 5) facts.marks_spaces = f.value != 0;
      }
    } else if (field.number == 5) {  // denormalizer
      for (Field f; read_field(message, f);)
        if (f.number == 2 && !f.bytes.empty()) facts.normalises = true;
    }
  }
  return facts;
}

// --- Words seen before, with their ids: text repeats itself, and the library's encoder takes microseconds a word.

class WordCache {
 public:
  bool append(std::string_view word, std::vector<int32_t>& out) const {
    const auto at = spans_.find(word);
    if (at == spans_.end()) return false;
    const auto [begin, count] = at->second;
    out.insert(out.end(), ids_.begin() + begin, ids_.begin() + begin + count);
    return true;
  }

  void keep(std::string_view word, std::span<const int> ids) {
    if (spans_.size() >= words_held) return;
    spans_.emplace(word, std::pair{static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(ids.size())});
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  static constexpr size_t longest_word = 64;

 private:
  static constexpr size_t words_held = size_t{1} << 17;
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, std::pair<uint32_t, uint32_t>, Hash, std::equal_to<>> spans_;
  std::vector<int32_t> ids_;
};

// As many caches as calls that are made at once.
class CachePool {
 public:
  class Lease {
   public:
    explicit Lease(CachePool& pool) : pool_(pool) {
      const std::lock_guard lock(pool.mutex_);
      if (pool.idle_.empty()) {
        cache_ = std::make_unique<WordCache>();
      } else {
        cache_ = std::move(pool.idle_.back());
        pool.idle_.pop_back();
      }
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(cache_));
    }
    WordCache* operator->() const { return cache_.get(); }

   private:
    CachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
};

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string_view model, const std::filesystem::path& name) : name_(name.string()) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok() || processor_.GetPieceSize() <= 0)
      throw input_error("{}: not a SentencePiece model file ({})", name_,
                        status.ok() ? "no pieces" : status.error_message());
    const ModelFacts facts = read_facts(model);
    type_ = facts.type;
    exact_ = facts.byte_fallback && !facts.normalises && !facts.adds_prefix && !facts.drops_spaces &&
             facts.marks_spaces && !facts.space_is_suffix;
    for (int byte = 0; byte < 256; ++byte) {
      bytes_[static_cast<size_t>(byte)] = processor_.PieceToId(fmt::format("<0x{:02X}>", byte));
      if (!processor_.IsByte(bytes_[static_cast<size_t>(byte)])) exact_ = false;
    }
    if (exact_) read_pieces();
  }

  int64_t vocab() const override { return processor_.GetPieceSize(); }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    if (!exact_) {
      if (valid_utf8_prefix(text) != text.size()) throw input_error("{}: this tokenizer takes valid UTF-8 only", name_);
      encode_run(text, out);
      return;
    }
    while (!text.empty()) {
      const size_t valid = valid_utf8_prefix(text);
      encode_valid(text.substr(0, valid), out);
      text.remove_prefix(valid);
      for (; !text.empty() && valid_utf8_prefix(text.substr(0, 4)) == 0; text.remove_prefix(1)) byte(text.front(), out);
    }
  }

  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids)
      if (id < 0 || id >= vocab())
        throw input_error("token id {} is not of {}: its ids are 0 to {}", id, name_, vocab() - 1);
    std::string text;
    if (exact_) {
      for (const int32_t id : ids) text += texts_[static_cast<size_t>(id)];
      return text;
    }
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) throw input_error("{}: cannot decode: {}", name_, status.error_message());
    return text;
  }

  std::optional<int32_t> end_of_document() const override {
    const int id = processor_.eos_id();
    return id >= 0 ? std::optional<int32_t>(id) : std::nullopt;
  }

  bool exact() const override { return exact_; }

  std::string description() const override {
    static constexpr const char* types[] = {"", " unigram", " BPE", " words", " characters"};
    return fmt::format("SentencePiece{}, {} ids", type_ < 5 ? types[type_] : "", vocab());
  }

 private:
  // The text of every id, and whether words can be encoded one by one.
  void read_pieces() {
    texts_.resize(static_cast<size_t>(vocab()));
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id) || processor_.IsUnknown(id) || processor_.IsByte(id)) continue;
      std::string& text = texts_[static_cast<size_t>(id)];
      text = processor_.IdToPiece(id);
      for (size_t at = 0; (at = text.find(space_sign, at)) != std::string::npos; ++at)
        text.replace(at, space_sign.size(), " ");
      const size_t letter = text.find_first_not_of(' ');
      if (letter != std::string::npos && text.find(' ', letter) != std::string::npos) pieces_cross_words_ = true;
      if (text.find('\n') != std::string::npos) pieces_cross_lines_ = true;
    }
    for (size_t b = 0; b < 256; ++b) texts_[static_cast<size_t>(bytes_[b])] = std::string(1, static_cast<char>(b));
  }

  void byte(char c, std::vector<int32_t>& out) const { out.push_back(bytes_[static_cast<uint8_t>(c)]); }

  // Valid UTF-8. The space sign itself goes through as bytes, or it would come back as a space.
  void encode_valid(std::string_view text, std::vector<int32_t>& out) const {
    while (!text.empty()) {
      const size_t sign = std::min(text.find(space_sign), text.size());
      encode_words(text.substr(0, sign), out);
      text.remove_prefix(sign);
      if (text.empty()) break;
      for (const char c : space_sign) byte(c, out);
      text.remove_prefix(space_sign.size());
    }
  }

  // No piece spans the border between a non-space and a space, so the words in between are encoded independently.
  void encode_words(std::string_view text, std::vector<int32_t>& out) const {
    if (pieces_cross_words_) {
      encode_run(text, out);
      return;
    }
    const CachePool::Lease cache(caches_);
    while (!text.empty()) {
      if (text.front() == '\n' && !pieces_cross_lines_) {
        byte('\n', out);
        text.remove_prefix(1);
        continue;
      }
      size_t end = std::min(text.find_first_not_of(' '), text.size());
      end = std::min(text.find_first_of(pieces_cross_lines_ ? " " : " \n", end), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(end);
      if (word.size() > WordCache::longest_word) {
        encode_run(word, out);
      } else if (!cache->append(word, out)) {
        const size_t before = out.size();
        encode_run(word, out);
        cache->keep(word, std::span(out).subspan(before));
      }
    }
  }

  void encode_run(std::string_view text, std::vector<int32_t>& out) const {
    if (text.empty()) return;
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) throw input_error("{}: cannot encode: {}", name_, status.error_message());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  uint64_t type_ = 1;
  bool exact_ = false, pieces_cross_words_ = false, pieces_cross_lines_ = false;
  std::array<int, 256> bytes_{};
  std::vector<std::string> texts_;  // of each id, where exact
  mutable CachePool caches_;
};

// --- Training.

// The sampled lines; SentencePiece pulls them from here, so that none is held twice.
class SampledLines final : public sentencepiece::SentenceIterator {
 public:
  SampledLines(std::span<const Input> texts, int64_t budget, const SentencePieceTraining& training)
      : options_{.rule = DocumentRule::line, .piece_bytes = longest_line, .json_key = training.json_key},
        reader_({texts.begin(), texts.end()}, options_),
        key_(random_key(training.seed, "tokenizer sample")) {
    int64_t total = 0;
    for (const Input& input : texts) total += estimated_text_bytes(input);
    share_ = total > budget ? static_cast<double>(budget) / static_cast<double>(total) : 1.0;
    bytes_left_ = 2 * budget;
    advance();
  }

  bool done() const override { return done_; }
  void Next() override { advance(); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  int64_t lines() const { return lines_; }
  bool sampled() const { return share_ < 1; }

 private:
  static constexpr int64_t longest_line = 4096;  // SentencePiece leaves out sentences of more than 4192 bytes

  void advance() {
    for (std::string_view line; bytes_left_ > 0 && next_line(line);) {
      const Random4 bits = philox(key_, index_++);
      if (static_cast<double>(bits[0]) * 0x1p-32 >= share_) continue;
      if (line.empty() || valid_utf8_prefix(line) != line.size()) continue;
      line_ = line;
      bytes_left_ -= static_cast<int64_t>(line_.size());
      ++lines_;
      return;
    }
    done_ = true;
  }

  // Lines of plain text as the reader gives them; those of a document in JSON are in its pieces.
  bool next_line(std::string_view& line) {
    while (rest_.empty()) {
      if (piece_ == pieces_.size()) {
        Record record;
        if (!reader_.next(record)) return false;
        record_pieces(record, options_, scratch_, pieces_);
        piece_ = 0;
      }
      rest_ = pieces_[piece_++].text;
    }
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return true;
  }

  ReadOptions options_;
  InputReader reader_;
  std::string scratch_;
  std::vector<Piece> pieces_;
  size_t piece_ = 0;
  std::string_view rest_;
  uint64_t key_, index_ = 0;
  double share_ = 1;
  int64_t bytes_left_ = 0, lines_ = 0;
  bool done_ = false;
  std::string line_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view model, const std::filesystem::path& name) {
  return std::make_unique<SentencePiece>(model, name);
}

std::string train_sentencepiece(std::span<const Input> texts, const SentencePieceTraining& training) {
  constexpr int least = 300;  // unknown, end of document, 256 bytes, and some letters
  if (training.vocab < least)
    throw input_error("a vocabulary of {} is too small: at least {} (256 of the ids are bytes); or take raw bytes",
                      training.vocab, least);
  const int64_t budget = training.sample_bytes > 0 ? training.sample_bytes : int64_t{512} * training.vocab;
  SampledLines lines(texts, budget, training);
  if (lines.done())
    throw input_error("no text to train a tokenizer on in {}", texts.empty() ? "no files" : texts[0].path.string());
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(training.vocab)},
      // Decoding gives the text back: no normalisation, no space added or removed, bytes for whatever is left.
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"byte_fallback", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},
      // Letters seen less often than this go through as bytes; without it one odd page fills the vocabulary.
      {"character_coverage", "0.9995"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"input_sentence_size", "0"},
      {"num_threads", "2"},  // fixed: results may depend on it
      {"minloglevel", log_level},
  };
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (status.ok()) return model;
  const std::string message = status.error_message();
  std::smatch match;
  if (std::regex_search(message, match, std::regex("value <= (\\d+)")))
    throw input_error(
        "a vocabulary of {} is more than this text can fill: at most {}, from the {} lines {}; ask for a smaller "
        "vocabulary or give more text",
        training.vocab, match[1].str(), lines.lines(),
        lines.sampled() ? fmt::format("of the sample of about {}", human_bytes(budget)) : "read");
  if (std::regex_search(message, match, std::regex("required_chars\\. \\d+ vs (\\d+)")))
    throw input_error("a vocabulary of {} is too small for the letters of this text: at least {}", training.vocab,
                      match[1].str());
  throw input_error("cannot train a tokenizer on {}: {}", texts[0].path.string(), message);
}

std::string train_sentencepiece(std::span<const std::filesystem::path> texts, const SentencePieceTraining& training) {
  return train_sentencepiece(find_inputs(texts).files, training);
}

}  // namespace strata::data
