#include "data/build.h"

#include <xxhash.h>

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/megatron.h"
#include "data/ordered_pool.h"
#include "data/utf8.h"
#include "data/work_folder.h"
#include "files/atomic_file.h"

namespace strata::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* manifest_name = "manifest.json";
constexpr const char* state_name = "state.json";
constexpr const char* model_name = "tokenizer.model";
constexpr int64_t state_version = 1;

// One of the two datasets under way.
class Part {
 public:
  Part(const fs::path& prefix, const fs::path& work, const Tokenizer& tokenizer, DType dtype, const Json& from)
      : end_(tokenizer.end_of_document()), writer_(prefix, dtype, work, mark_of(from)) {
    counts_.resize(static_cast<size_t>(tokenizer.vocab()));
    if (from.is_null()) return;
    bytes_ = from.at("bytes");
    const Json& counts = from.at("counts");
    for (size_t i = 0; i < counts.size() && i < counts_.size(); ++i) counts_[i] = counts[i];
  }

  void add(std::span<const int32_t> ids, int64_t bytes) {
    for (const int32_t id : ids) ++counts_[static_cast<size_t>(id)];
    writer_.add(ids);
    bytes_ += bytes;
  }

  // Does nothing between documents.
  void end_document() {
    if (!writer_.inside_document()) return;
    if (end_) {
      writer_.append(*end_);
      ++counts_[static_cast<size_t>(*end_)];
    }
    writer_.end_document();
  }

  Json save() {
    const MegatronWriter::Mark mark = writer_.mark();
    return {{"tokens", mark.tokens},
            {"sequences", mark.sequences},
            {"documents", mark.documents},
            {"empty_documents", mark.empty_documents},
            {"document_start", mark.document_start},
            {"open_length", mark.open_length},
            {"bytes", bytes_},
            {"counts", counts_}};
  }

  void finish() { writer_.finish(); }
  int64_t tokens() const { return writer_.tokens(); }

 private:
  static MegatronWriter::Mark mark_of(const Json& from) {
    if (from.is_null()) return {};
    return {.tokens = from.at("tokens"),
            .sequences = from.at("sequences"),
            .documents = from.at("documents"),
            .empty_documents = from.at("empty_documents"),
            .document_start = from.at("document_start"),
            .open_length = from.at("open_length")};
  }

  std::optional<int32_t> end_;
  MegatronWriter writer_;
  std::vector<int64_t> counts_;
  int64_t bytes_ = 0;
};

// Some records, and what a worker makes of them.
struct Batch {
  struct Item {
    size_t begin, length;
    const Input* input;
    int64_t place;
    bool last;
  };
  struct Tokens {
    size_t end;     // in ids
    int64_t bytes;  // of text; 0: nothing but an end
    bool last;
  };
  std::string text;
  std::vector<Item> items;
  Position after;
  int64_t stored_bytes = 0;  // of the inputs, up to `after`
  int64_t empty = 0;         // documents without text

  std::vector<int32_t> ids;
  std::vector<Tokens> pieces;

  void clear() {
    text.clear();
    items.clear();
    ids.clear();
    pieces.clear();
    empty = 0;
  }
};

// False at the end of the inputs, of which the batch then has the rest.
bool fill(InputReader& reader, size_t batch_bytes, Batch& batch) {
  Record record;
  bool more = true;
  while (batch.text.size() < batch_bytes && (more = reader.next(record))) {
    batch.items.push_back({batch.text.size(), record.text.size(), record.input, record.place, record.last});
    batch.text += record.text;
    batch.after = reader.position();
  }
  batch.after = reader.position();
  batch.stored_bytes = reader.stored_bytes();
  return more;
}

void tokenise(const Tokenizer& tokenizer, const ReadOptions& options, Batch& batch) {
  std::string scratch;
  std::vector<Piece> pieces;
  batch.ids.reserve(
      batch.text.size());  // once: a tokenizer that reserves just what it adds would move them all each time
  for (const Batch::Item& item : batch.items) {
    const Record record = {std::string_view(batch.text).substr(item.begin, item.length), item.input, item.place,
                           item.last};
    record_pieces(record, options, scratch, pieces);
    if (item.input->format == Format::json_lines && scratch.empty()) ++batch.empty;
    for (const Piece& piece : pieces) {
      if (!tokenizer.any_bytes()) {
        const size_t valid = valid_utf8_prefix(piece.text);
        if (valid != piece.text.size())
          throw input_error(
              "{}: byte {} is not valid UTF-8, which this tokenizer ({}) needs; convert the file, with iconv say",
              item.input->path.string(), item.place + static_cast<int64_t>(valid), tokenizer.description());
      }
      if (!piece.text.empty()) tokenizer.encode(piece.text, batch.ids);
      batch.pieces.push_back({batch.ids.size(), static_cast<int64_t>(piece.text.size()), piece.last});
    }
  }
}

std::string names(const std::vector<Input>& files) {
  std::string text = files.front().path.string();
  if (files.size() > 1) text += fmt::format(" and {} more", files.size() - 1);
  return text;
}

const char* name_of(DocumentRule rule) {
  return rule == DocumentRule::form_feed ? "form-feed" : rule == DocumentRule::blank_line ? "blank-line" : "line";
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

std::string tokenizer_identity(const fs::path& path) {
  if (path == bytes_name) return std::string(bytes_name);
  std::string all;
  std::error_code error;
  const auto add = [&](const fs::path& file) {
    const std::string content = files::read_text(file);
    all += fmt::format("{}{}:{:016x}", all.empty() ? "" : " ", file.filename().string(),
                       XXH3_64bits(content.data(), content.size()));
  };
  if (fs::is_directory(path, error)) {
    for (const char* name : {"tokenizer.model", "tokenizer.json", "vocab.json", "merges.txt"})
      if (fs::is_regular_file(path / name, error)) add(path / name);
    return all;
  }
  add(path);
  // A pair of files, either of which may name the tokenizer.
  constexpr std::pair<std::string_view, std::string_view> pairs[] = {{"vocab.json", "merges.txt"},
                                                                     {"merges.txt", "vocab.json"}};
  const std::string name = path.filename().string();
  for (const auto& [one, other] : pairs)
    if (name.ends_with(one)) {
      const fs::path beside = path.parent_path() / (name.substr(0, name.size() - one.size()) + std::string(other));
      if (fs::is_regular_file(beside, error)) add(beside);
    }
  return all;
}

class DatasetBuild::State {
 public:
  explicit State(BuildOptions options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  const Inputs& inputs() const { return inputs_; }
  const WorkFolder& folder() const {
    STRATA_CHECK(folder_.has_value(), "the build is done");
    return *folder_;
  }
  int64_t saved_tokens() const;
  BuildReport run(const Tokenizer& tokenizer);

 private:
  Json manifest() const;
  void check_manifest() const;
  void begin(const Tokenizer& tokenizer);
  void read(const Tokenizer& tokenizer);
  void take(const Batch& batch);
  void save(bool finished);
  void commit();
  BuildReport report() const;
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void damaged() const;
  fs::path validation_prefix() const { return prefix_.string() + "_validation"; }

  BuildOptions options_;
  fs::path prefix_;
  Inputs inputs_;
  std::optional<WorkFolder> folder_;
  Json saved_;  // the state as it is on disk, null without one
  Position position_;
  int64_t pieces_ = 0, empty_documents_ = 0, text_bytes_ = 0;
  std::optional<Part> train_, validation_;
};

DatasetBuild::State::State(BuildOptions options) : options_(std::move(options)) {
  if (!(options_.validation >= 0 && options_.validation < 1))
    throw input_error("the validation part is a fraction from 0 to below 1, not {}", options_.validation);
  prefix_ = dataset_prefix(options_.prefix);
  if (prefix_.filename().empty())
    throw input_error("{}: name the dataset, not only its folder", options_.prefix.string());
  inputs_ = find_inputs(options_.texts, options_.format);
  if (options_.read.piece_bytes < 16)
    throw input_error("pieces of {} bytes are too short: at least 16", options_.read.piece_bytes);
  folder_.emplace(prefix_.string() + ".building");
  if (!options_.restart)
    if (std::optional<Json> state = folder_->read(state_name)) {
      saved_ = std::move(*state);
      check_manifest();
    }
  if (saved_.is_null()) folder_->clear();
  try {
    folder_->write(manifest_name, manifest());
  } catch (const Error&) {
    if (saved_.is_null()) folder_->remove();
    throw;
  }
}

DatasetBuild::State::~State() {
  if (folder_ && saved_.is_null()) folder_->remove();
}

Json DatasetBuild::State::manifest() const {
  Json files = Json::array();
  for (const Input& input : inputs_.files)
    files.push_back({fs::absolute(input.path).lexically_normal().string(),
                     input.format == Format::text ? "text" : "json lines", input.bytes, input.modified});
  return {{"version", state_version},
          {"options",
           {{"tokenizer", options_.tokenizer},
            {"--documents", name_of(options_.read.rule)},
            {"--piece", options_.read.piece_bytes},
            {"--json-key", options_.read.json_key},
            {"--validation", options_.validation}}},
          {"files", files}};
}

void DatasetBuild::State::refuse(const std::string& what) const {
  throw input_error(
      "{}: holds an unfinished build, and {}: undo that to go on with it, or give --restart to begin anew",
      folder_->path().string(), what);
}

void DatasetBuild::State::damaged() const {
  throw input_error("{}: this unfinished build is damaged; --restart begins anew", folder_->path().string());
}

void DatasetBuild::State::check_manifest() const {
  try {
    const std::optional<Json> then = folder_->read(manifest_name);
    const Json now = manifest();
    if (!then || then->at("version") != now.at("version")) refuse("another version of strata made it");
    for (const auto& [name, value] : now.at("options").items()) {
      const Json& before = then->at("options").at(name);
      if (before != value) refuse(fmt::format("{} was {} then and is {} now", name, before.dump(), value.dump()));
    }
    // What it had not begun to read may change.
    const Json& position = saved_.at("position");
    size_t begun = position.at("file").get<size_t>() + (position.at("offset") != 0 ? 1 : 0);
    if (saved_.at("finished")) begun = then->at("files").size();
    for (size_t i = 0; i < begun; ++i) {
      const Json& before = then->at("files").at(i);
      const std::string name = before.at(0);
      if (i >= now.at("files").size()) refuse(fmt::format("{}, which it has read, is not given now", name));
      const Json& file = now.at("files").at(i);
      if (file.at(0) != before.at(0)) refuse(fmt::format("it read {} where {} is given now", name, file.at(0).dump()));
      if (file != before)
        refuse(fmt::format("{} has changed since ({} bytes then, {} now)", name, before.at(2).get<int64_t>(),
                           file.at(2).get<int64_t>()));
    }
  } catch (const nlohmann::json::exception&) {
    damaged();
  }
}

int64_t DatasetBuild::State::saved_tokens() const {
  if (saved_.is_null()) return 0;
  int64_t tokens = 0;
  for (const char* part : {"train", "validation"})
    if (saved_.contains(part)) tokens += saved_.at(part).at("tokens").get<int64_t>();
  return tokens;
}

// From nothing, or from where the state on disk says.
void DatasetBuild::State::begin(const Tokenizer& tokenizer) {
  const DType dtype = token_dtype(tokenizer.vocab());
  const auto part = [&](const fs::path& prefix, const char* name, std::optional<Part>& made) {
    made.emplace(prefix, *folder_ / name, tokenizer, dtype, saved_.is_null() ? Json() : saved_.at(name));
  };
  part(prefix_, "train", train_);
  if (options_.validation > 0) part(validation_prefix(), "validation", validation_);
  if (saved_.is_null()) return;
  const Json& position = saved_.at("position");
  position_ = {position.at("file"), position.at("offset"), position.at("line"), position.at("inside")};
  pieces_ = saved_.at("pieces");
  empty_documents_ = saved_.at("empty_documents");
  text_bytes_ = saved_.at("text_bytes");
}

void DatasetBuild::State::save(bool finished) {
  Json state = {{"position",
                 {{"file", position_.file},
                  {"offset", position_.offset},
                  {"line", position_.line},
                  {"inside", position_.inside}}},
                {"finished", finished},
                {"pieces", pieces_},
                {"empty_documents", empty_documents_},
                {"text_bytes", text_bytes_},
                {"train", train_->save()}};
  if (validation_) state["validation"] = validation_->save();
  folder_->write(state_name, state);
  saved_ = std::move(state);
}

void DatasetBuild::State::take(const Batch& batch) {
  const auto chosen = [&](int64_t before) { return std::ceil(static_cast<double>(before) * options_.validation); };
  size_t begin = 0;
  for (const Batch::Tokens& piece : batch.pieces) {
    if (piece.bytes > 0) {
      const bool validates = validation_ && chosen(pieces_ + 1) > chosen(pieces_);
      Part& part = validates ? *validation_ : *train_;
      if (Part* rest = validates ? &*train_ : validation_ ? &*validation_ : nullptr) rest->end_document();
      part.add(std::span(batch.ids).subspan(begin, piece.end - begin), piece.bytes);
      text_bytes_ += piece.bytes;
      ++pieces_;
    }
    begin = piece.end;
    if (!piece.last) continue;
    train_->end_document();
    if (validation_) validation_->end_document();
  }
  position_ = batch.after;
  empty_documents_ += batch.empty;
}

// Reads, has tokenised and writes all that is left of the inputs. This thread reads and writes; the others tokenise.
void DatasetBuild::State::read(const Tokenizer& tokenizer) {
  InputReader reader(inputs_.files, options_.read, position_);
  OrderedPool<Batch> pool(options_.workers, [&](Batch& batch) { tokenise(tokenizer, options_.read, batch); });
  const auto ahead = static_cast<size_t>(4 * options_.workers);  // bounds memory
  std::vector<std::unique_ptr<Batch>> spare;
  std::exception_ptr fault;  // of reading; what came before it has its turn first
  bool more = true;
  int64_t saved_bytes = text_bytes_, seen_empty = 0;
  while (more || pool.pending() > 0) {
    if (options_.stop != nullptr && options_.stop->load()) {
      save(false);
      throw Error(Fault::interrupted,
                  fmt::format("stopped after {} of text; nothing is lost: the same command goes on from there (what is "
                              "done so far lies in {})",
                              human_bytes(text_bytes_), folder_->path().string()));
    }
    if (more && pool.pending() < ahead) {
      std::unique_ptr<Batch> batch;
      if (spare.empty()) {
        batch = std::make_unique<Batch>();
      } else {
        batch = std::move(spare.back());
        spare.pop_back();
      }
      try {
        more = fill(reader, options_.batch_bytes, *batch);
      } catch (...) {
        fault = std::current_exception();
        more = false;
      }
      batch->empty = reader.empty_documents() - std::exchange(seen_empty, reader.empty_documents());
      pool.submit(std::move(batch));
      continue;
    }
    std::unique_ptr<Batch> batch = pool.next();
    take(*batch);
    if (text_bytes_ - saved_bytes >= options_.save_every) {
      save(false);
      saved_bytes = text_bytes_;
    }
    if (options_.progress)
      options_.progress({batch->stored_bytes, inputs_.bytes(), text_bytes_,
                         train_->tokens() + (validation_ ? validation_->tokens() : 0)});
    batch->clear();
    spare.push_back(std::move(batch));
  }
  if (fault) std::rethrow_exception(fault);
}

// Whatever ends the program in here, the same command does the rest.
void DatasetBuild::State::commit() {
  std::error_code error;
  if (fs::exists(*folder_ / model_name, error)) {
    fs::remove(idx_path(prefix_), error);  // an older dataset is not to be read with this tokenizer
    fs::rename(*folder_ / model_name, prefix_.string() + ".model", error);
    if (error) throw run_error("{}.model: cannot rename into place: {}", prefix_.string(), error.message());
  }
  const bool both = (options_.validation == 0 || commit_dataset(validation_prefix(), *folder_ / "validation")) &&
                    commit_dataset(prefix_, *folder_ / "train");
  if (!both) damaged();
  train_.reset();
  validation_.reset();
  folder_->remove();
  folder_.reset();
}

BuildReport DatasetBuild::State::report() const {
  const auto part = [&](const char* name, const fs::path& prefix) {
    const Json& from = saved_.at(name);
    return BuiltPart{prefix,
                     from.at("documents"),
                     from.at("sequences"),
                     from.at("tokens"),
                     from.at("bytes"),
                     unigram_entropy(from.at("counts").get<std::vector<int64_t>>())};
  };
  BuildReport report{.train = part("train", prefix_),
                     .validation = std::nullopt,
                     .empty_documents = saved_.at("empty_documents"),
                     .input_files = static_cast<int64_t>(inputs_.files.size()),
                     .left_out_files = inputs_.left_out,
                     .stored_bytes = inputs_.bytes()};
  if (options_.validation > 0) report.validation = part("validation", validation_prefix());
  return report;
}

BuildReport DatasetBuild::State::run(const Tokenizer& tokenizer) {
  try {
    const int64_t earlier = saved_tokens();
    if (saved_.is_null() || !saved_.at("finished").get<bool>()) {
      begin(tokenizer);
      read(tokenizer);
      if (pieces_ == 0)
        throw input_error("{}: no text ({} read, nothing but whitespace)", names(inputs_.files),
                          human_bytes(inputs_.bytes()));
      if (train_->tokens() == 0)
        throw input_error(
            "{}: a validation part of {} leaves no text to train on: the text is one piece of at most {} bytes; give "
            "more text or a validation file of its own",
            names(inputs_.files), options_.validation, options_.read.piece_bytes);
      // All is on disk before anything gets its name: a full disk leaves what was there.
      train_->finish();
      if (validation_) validation_->finish();
      save(true);
    }
    BuildReport result = report();
    result.dtype = token_dtype(tokenizer.vocab());
    result.earlier_tokens = earlier;
    commit();
    return result;
  } catch (const nlohmann::json::exception&) {
    damaged();
  } catch (const Error& error) {
    if (saved_.is_null() || error.fault() == Fault::interrupted) throw;
    throw Error(error.fault(), fmt::format("{}. What was done before lies in {}: once this is put right, the same "
                                           "command goes on from there",
                                           error.what(), folder_->path().string()));
  }
}

DatasetBuild::DatasetBuild(BuildOptions options) : state_(std::make_unique<State>(std::move(options))) {}
DatasetBuild::~DatasetBuild() = default;

const Inputs& DatasetBuild::inputs() const { return state_->inputs(); }
int64_t DatasetBuild::earlier_tokens() const { return state_->saved_tokens(); }
BuildReport DatasetBuild::run(const Tokenizer& tokenizer) { return state_->run(tokenizer); }

std::optional<std::string> DatasetBuild::kept_tokenizer() const {
  std::error_code error;
  const fs::path model = state_->folder() / model_name;
  return fs::exists(model, error) ? std::optional(files::read_text(model)) : std::nullopt;
}

void DatasetBuild::keep_tokenizer(std::string_view model) { files::write_text(state_->folder() / model_name, model); }

}  // namespace strata::data
