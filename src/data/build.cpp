#include "data/build.h"

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/megatron.h"
#include "data/utf8.h"
#include "files/atomic_file.h"

namespace strata::data {

namespace {

// One of the two datasets under way. The latest sequence is held back until it is known whether its document goes on.
class Part {
 public:
  Part(const std::filesystem::path& prefix, const Tokenizer& tokenizer, DType dtype)
      : prefix_(prefix),
        end_(tokenizer.end_of_document()),
        writer_(prefix, dtype),
        counts_(static_cast<size_t>(tokenizer.vocab())) {}

  void add(std::vector<int32_t>& ids, size_t bytes) {
    write_held();
    std::swap(held_, ids);
    bytes_ += static_cast<int64_t>(bytes);
    inside_ = true;
  }

  // Does nothing between documents.
  void end_document() {
    if (!inside_) return;
    if (end_) held_.push_back(*end_);
    write_held();
    writer_.end_document();
    inside_ = false;
  }

  void finish() { writer_.finish(); }
  void commit() { writer_.commit(); }
  int64_t tokens() const { return writer_.tokens(); }
  BuiltPart report() const {
    return {prefix_, writer_.documents(), writer_.sequences(), writer_.tokens(), bytes_, unigram_entropy(counts_)};
  }

 private:
  void write_held() {
    for (const int32_t id : held_) ++counts_[static_cast<size_t>(id)];
    writer_.add(held_);
    held_.clear();
  }

  std::filesystem::path prefix_;
  std::optional<int32_t> end_;
  MegatronWriter writer_;
  std::vector<int64_t> counts_;
  std::vector<int32_t> held_;
  bool inside_ = false;
  int64_t bytes_ = 0;
};

std::string names(const std::vector<std::filesystem::path>& files) {
  std::string text = files.front().string();
  if (files.size() > 1) text += fmt::format(" and {} more", files.size() - 1);
  return text;
}

}  // namespace

double unigram_entropy(const std::vector<int64_t>& counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(total);
    entropy -= p * std::log(p);
  }
  return entropy;
}

BuildReport build_dataset(const Tokenizer& tokenizer, const BuildOptions& options) {
  if (options.texts.empty()) throw input_error("no text files are given");
  if (!(options.validation >= 0 && options.validation < 1))
    throw input_error("the validation part is a fraction from 0 to below 1, not {}", options.validation);
  const std::filesystem::path prefix = dataset_prefix(options.prefix);
  if (prefix.filename().empty())
    throw input_error("{}: name the dataset, not only its folder", options.prefix.string());
  std::error_code error;
  if (prefix.has_parent_path()) std::filesystem::create_directories(prefix.parent_path(), error);

  const DType dtype = token_dtype(tokenizer.vocab());
  Part train(prefix, tokenizer, dtype);
  std::optional<Part> validation;
  if (options.validation > 0) validation.emplace(prefix.string() + "_validation", tokenizer, dtype);

  TextReader reader(options.texts, options.rule, options.piece_bytes);
  std::vector<int32_t> ids;
  int64_t pieces = 0;
  const auto chosen = [&](int64_t before) { return std::ceil(static_cast<double>(before) * options.validation); };
  for (Piece piece; reader.next(piece);) {
    if (options.stop != nullptr && options.stop->load())
      throw run_error("stopped; {} was not written", prefix.string());
    if (!tokenizer.exact()) {
      const size_t valid = valid_utf8_prefix(piece.text);
      if (valid != piece.text.size())
        throw input_error(
            "{}: byte {} is not valid UTF-8, which this tokenizer ({}) needs; convert the file, with iconv say",
            piece.file->string(), piece.offset + static_cast<int64_t>(valid), tokenizer.description());
    }
    if (!piece.text.empty()) {
      const bool validates = validation && chosen(pieces + 1) > chosen(pieces);
      Part& part = validates ? *validation : train;
      if (Part* other = validates ? &train : validation ? &*validation : nullptr) other->end_document();
      ids.clear();
      tokenizer.encode(piece.text, ids);
      part.add(ids, piece.text.size());
      ++pieces;
    }
    if (piece.last) {
      train.end_document();
      if (validation) validation->end_document();
    }
  }
  if (pieces == 0)
    throw input_error("{}: no text ({} read, nothing but whitespace)", names(options.texts),
                      human_bytes(reader.bytes_read()));
  if (train.tokens() == 0)
    throw input_error(
        "{}: a validation part of {} leaves no text to train on: the text is one piece of at most {} bytes; give more "
        "text or a "
        "validation file of its own",
        names(options.texts), options.validation, options.piece_bytes);

  // All is on disk before anything gets its name: a full disk leaves what was there.
  train.finish();
  if (validation) validation->finish();
  if (!options.tokenizer_model.empty()) {
    files::AtomicFile model(prefix.string() + ".model");
    model.write(options.tokenizer_model);
    std::filesystem::remove(idx_path(prefix), error);  // an older dataset is not to be read with this tokenizer
    model.commit();
  }
  if (validation) validation->commit();
  train.commit();

  BuildReport report{train.report(), {}, reader.empty_documents(), dtype};
  if (validation) report.validation = validation->report();
  return report;
}

}  // namespace strata::data
