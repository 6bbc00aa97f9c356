#include "data/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "data/bpe_tokenizer.h"
#include "data/bpe_vocabulary.h"
#include "data/byte_alphabet.h"
#include "data/utf8.h"
#include "files/json.h"

namespace strata::data {

namespace {

using Json = nlohmann::json;

// A value and where it stands: "FILE: model.vocab".
struct At {
  const Json& value;
  const std::string& file;
  std::string key;

  std::string where() const { return key.empty() ? file : file + ": " + key; }
  At member(const std::string& name) const {
    static const Json null;
    const auto at = value.is_object() ? value.find(name) : value.end();
    return {value.is_object() && at != value.end() ? *at : null, file, key.empty() ? name : key + "." + name};
  }
  At element(size_t i) const { return {value[i], file, fmt::format("{}[{}]", key, i)}; }

  void need_object() const {
    if (!value.is_object()) throw input_error("{}: an object is expected, not {}", where(), files::shown_json(value));
  }
  size_t list() const {
    if (!value.is_array()) throw input_error("{}: a list is expected, not {}", where(), files::shown_json(value));
    return value.size();
  }
  bool flag(bool otherwise) const {
    if (value.is_null()) return otherwise;
    if (!value.is_boolean())
      throw input_error("{}: true or false is expected, not {}", where(), files::shown_json(value));
    return value.get<bool>();
  }
  const std::string& text() const {
    if (!value.is_string()) throw input_error("{}: a text is expected, not {}", where(), files::shown_json(value));
    return value.get_ref<const std::string&>();
  }
  std::string text_or_nothing() const { return value.is_null() ? std::string() : text(); }
  int64_t number() const {
    if (!value.is_number_integer() || value > INT64_MAX)
      throw input_error("{}: a whole number is expected, not {}", where(), files::shown_json(value));
    return value.get<int64_t>();
  }
};

// --- normalizer

void read_normalizers(const At& at, std::vector<NormalForm>& out) {
  if (at.value.is_null()) return;
  at.need_object();
  const std::string& type = at.member("type").text();
  if (type == "Sequence") {
    const At all = at.member("normalizers");
    const size_t count = all.list();
    for (size_t i = 0; i < count; ++i) read_normalizers(all.element(i), out);
    return;
  }
  static const std::pair<std::string_view, NormalForm> forms[] = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    out.push_back(form);
    return;
  }
  throw input_error(
      "{}: the normalizer {} is not supported; NFC, NFD, NFKC, NFKD and Sequence are; give the SentencePiece model "
      "(tokenizer.model) if there is one",
      at.where(), files::shown(type));
}

// --- pre_tokenizer

SplitBehavior read_behavior(const At& at, std::optional<SplitBehavior> otherwise = {}) {
  if (at.value.is_null() && otherwise) return *otherwise;
  const std::string& name = at.text();
  static const std::pair<std::string_view, SplitBehavior> behaviors[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [known, behavior] : behaviors)
    if (name == known) return behavior;
  throw input_error("{}: there is no behavior {}", at.where(), files::shown(name));
}

// A pattern that matches the text itself.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (c > ' ' && c < '\x7F' && std::isalnum(static_cast<unsigned char>(c)) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

Step::Pattern read_split(const At& at) {
  const SplitBehavior behavior = read_behavior(at.member("behavior"));
  const bool invert = at.member("invert").flag(false);
  const At pattern = at.member("pattern");
  if (const At words = pattern.member("String"); !words.value.is_null()) {
    if (words.text().empty()) throw input_error("{}: an empty pattern", words.where());
    return {Regex(escaped(words.text()), words.where()), behavior, invert};
  }
  const At regex = pattern.member("Regex");
  if (const std::optional<Scanner> scanner = Scanner::of_pattern(regex.text())) return {*scanner, behavior, invert};
  return {Regex(regex.text(), regex.where()), behavior, invert};
}

void read_steps(const At& at, std::vector<Step>& out) {
  at.need_object();
  const std::string& type = at.member("type").text();
  if (type == "Sequence") {
    const At all = at.member("pretokenizers");
    const size_t count = all.list();
    for (size_t i = 0; i < count; ++i) read_steps(all.element(i), out);
  } else if (type == "ByteLevel") {
    for (const Step& step : out)
      if (std::holds_alternative<Step::ByteLevel>(step.what)) throw input_error("{}: a second ByteLevel", at.where());
    out.push_back({Step::ByteLevel{at.member("add_prefix_space").flag(true), at.member("use_regex").flag(true)}});
  } else if (type == "Split") {
    out.push_back({read_split(at)});
  } else if (type == "Digits") {
    out.push_back({Step::Digits{at.member("individual_digits").flag(false)}});
  } else if (type == "Punctuation") {
    out.push_back({Step::Punctuation{read_behavior(at.member("behavior"), SplitBehavior::isolated)}});
  } else {
    throw input_error(
        "{}: the pre-tokenizer {} is not supported; ByteLevel, Split, Digits, Punctuation and Sequence are", at.where(),
        files::shown(type));
  }
}

PreTokenizer read_pretokenizer(const At& at) {
  std::vector<Step> steps;
  if (!at.value.is_null()) read_steps(at, steps);
  for (const Step& step : steps)
    if (std::holds_alternative<Step::ByteLevel>(step.what)) return PreTokenizer(std::move(steps));
  throw input_error(
      "{}: no ByteLevel in it: only byte-level BPE is read from JSON; give the SentencePiece model (tokenizer.model) "
      "if "
      "there is one",
      at.where());
}

// --- model

BpeVocabulary read_vocabulary(const At& at) {
  at.need_object();
  if (at.value.empty()) throw input_error("{}: no tokens", at.where());
  BpeVocabulary vocabulary(at.where(), at.value.size());
  for (const auto& [token, id] : at.value.items()) {
    if (!id.is_number_integer() || id > INT64_MAX)
      throw input_error("{}: token {} has {} for an id, not a whole number", at.where(), files::shown(token),
                        files::shown_json(id));
    vocabulary.add(token, id.get<int64_t>());
  }
  return vocabulary;
}

// "a b": two symbols and one space between them.
std::optional<WrittenMerge> split_merge(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) return std::nullopt;
  return WrittenMerge{line.substr(0, space), line.substr(space + 1)};
}

std::vector<WrittenMerge> read_merges(const At& at) {
  const size_t count = at.list();
  std::vector<WrittenMerge> merges;
  merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Json& merge = at.value[i];
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const std::optional<WrittenMerge> split = split_merge(line);
      if (!split)
        throw input_error("{}: {} is not two symbols with a space between them", at.element(i).where(),
                          files::shown(line));
      merges.push_back(*split);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.push_back({merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()});
    } else {
      throw input_error("{}: a merge is \"a b\" or [\"a\", \"b\"], not {}", at.element(i).where(),
                        files::shown_json(merge));
    }
  }
  return merges;
}

void refuse_unsupported(const At& model) {
  if (const At type = model.member("type"); !type.value.is_null() && type.text() != "BPE")
    throw input_error(
        "{}: a {} model is not supported, only byte-level BPE; give the SentencePiece model (tokenizer.model, "
        "spiece.model) "
        "if there is one",
        type.where(), files::shown(type.text()));
  for (const char* name : {"vocab", "merges"})
    if (model.member(name).value.is_null())
      throw input_error("{}: missing: this is no BPE tokenizer", model.member(name).where());
  if (const At dropout = model.member("dropout"); !dropout.value.is_null() && dropout.value != 0)
    throw input_error("{}: encoding with dropout is not supported; set it to null", dropout.where());
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const At affix = model.member(name); !affix.text_or_nothing().empty())
      throw input_error("{}: {} is not supported: only byte-level BPE without affixes is", affix.where(),
                        files::shown(affix.text()));
}

std::vector<Bpe::Word> whole_words(const BpeVocabulary& vocabulary) {
  std::vector<Bpe::Word> words;
  words.reserve(vocabulary.tokens().size());
  for (const BpeToken& token : vocabulary.tokens())
    if (std::optional<std::string> bytes = from_byte_characters(token.text))
      words.push_back({std::move(*bytes), token.id});
  return words;
}

// --- added tokens

std::vector<AddedToken> read_added_tokens(const At& at, const BpeVocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (at.value.is_null()) return tokens;
  const size_t count = at.list();
  std::unordered_map<std::string, size_t> seen;
  int64_t next = static_cast<int64_t>(vocabulary.tokens().size());
  for (size_t i = 0; i < count; ++i) {
    const At entry = at.element(i);
    entry.need_object();
    AddedToken token;
    token.content = entry.member("content").text();
    const int64_t id = entry.member("id").number();
    token.special = entry.member("special").flag(false);
    token.single_word = entry.member("single_word").flag(false);
    token.lstrip = entry.member("lstrip").flag(false);
    token.rstrip = entry.member("rstrip").flag(false);
    token.normalized = entry.member("normalized").flag(!token.special);
    if (token.content.empty()) continue;  // never found
    // A token's id is that of the vocabulary; those that it lacks are counted on from its size, whatever the file says.
    const auto again = seen.find(token.content);
    const int32_t known = vocabulary.id_of(token.content);
    const int64_t counted = again != seen.end() ? tokens[again->second].id : known >= 0 ? known : next;
    if (id != counted)
      throw input_error(
          "{}: {} has the id {}, but {} is {}: added tokens and vocabulary do not belong together (or put the token "
          "into "
          "model.vocab with its id)",
          entry.where(), files::shown(token.content), id,
          known >= 0 ? "in model.vocab it" : "the next one behind the vocabulary", counted);
    if (id >= BpeVocabulary::most_ids)
      throw input_error("{}: the id {} is past {}", entry.where(), id, BpeVocabulary::most_ids - 1);
    token.id = static_cast<int32_t>(id);
    if (again != seen.end()) {
      tokens[again->second] = token;
      continue;
    }
    if (known < 0) ++next;
    seen.emplace(token.content, tokens.size());
    tokens.push_back(std::move(token));
  }
  // With holes in the vocabulary, counting on from its size may meet an id that is taken.
  std::unordered_map<int32_t, std::string_view> taken;
  for (const BpeToken& token : vocabulary.tokens()) taken.emplace(token.id, token.text);
  for (const AddedToken& token : tokens)
    if (const auto [other, fresh] = taken.emplace(token.id, token.content); !fresh && other->second != token.content)
      throw input_error("{}: {} and {} have the same id, {}", at.where(), files::shown(token.content),
                        files::shown(other->second), token.id);
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::filesystem::path& file) {
  const std::string name = file.string();
  const Json json = files::parse_json(text, name);
  const At root{json, name, ""};
  root.need_object();
  const At at_model = root.member("model");
  if (!at_model.value.is_object()) throw input_error("{}: not a tokenizer: there is no \"model\" in it", name);
  if (const At version = root.member("version"); !version.value.is_null() && version.value != "1.0")
    throw input_error("{}: {} is not supported, only \"1.0\"", version.where(), files::shown_json(version.value));
  refuse_unsupported(at_model);

  BpeVocabulary vocabulary = read_vocabulary(at_model.member("vocab"));
  const At at_merges = at_model.member("merges");
  const std::vector<WrittenMerge> merges = read_merges(at_merges);
  std::vector<NormalForm> normalizers;
  read_normalizers(root.member("normalizer"), normalizers);
  PreTokenizer pretokenizer = read_pretokenizer(root.member("pre_tokenizer"));
  std::vector<AddedToken> added = read_added_tokens(root.member("added_tokens"), vocabulary);

  Bpe::Model model = make_model(
      vocabulary, merges, [&](size_t i) { return at_merges.element(i).where(); },
      at_model.member("unk_token").text_or_nothing());
  model.fuse_unknown = at_model.member("fuse_unk").flag(false);
  if (at_model.member("ignore_merges").flag(false)) model.whole_words = whole_words(vocabulary);
  if (at_model.member("byte_fallback").flag(false) &&
      std::find(model.bytes.begin(), model.bytes.end(), -1) != model.bytes.end())
    throw input_error("{}: not supported where the vocabulary lacks bytes", at_model.member("byte_fallback").where());
  return make_bpe_tokenizer(
      {name, vocabulary.take(), std::move(model), std::move(normalizers), std::move(pretokenizer), std::move(added)});
}

std::unique_ptr<Tokenizer> read_vocab_and_merges(std::string_view vocab, const std::filesystem::path& vocab_file,
                                                 std::string_view merges, const std::filesystem::path& merges_file) {
  const std::string vocab_name = vocab_file.string(), merges_name = merges_file.string();
  const Json json = files::parse_json(vocab, vocab_name);
  BpeVocabulary vocabulary = read_vocabulary({json, vocab_name, ""});

  std::vector<WrittenMerge> written;
  std::vector<size_t> lines;  // of each merge, from 1
  if (valid_utf8_prefix(merges) != merges.size())
    throw input_error("{}: byte {} is not valid UTF-8", merges_name, valid_utf8_prefix(merges));
  while (!merges.empty() && (merges.back() == '\n' || merges.back() == '\r')) merges.remove_suffix(1);
  for (size_t line = 1; !merges.empty(); ++line) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view content = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (content.ends_with('\r')) content.remove_suffix(1);
    if (content.starts_with("#version")) continue;
    const std::optional<WrittenMerge> merge = split_merge(content);
    if (!merge)
      throw input_error("{}:{}: {} is not two symbols with a space between them", merges_name, line,
                        files::shown(content));
    written.push_back(*merge);
    lines.push_back(line);
  }
  Bpe::Model model = make_model(
      vocabulary, written, [&](size_t i) { return fmt::format("{}:{}", merges_name, lines[i]); }, "");
  std::vector<Step> steps;
  steps.push_back({Step::ByteLevel{.add_prefix_space = false, .use_regex = true}});
  return make_bpe_tokenizer({vocab_name, vocabulary.take(), std::move(model), {}, PreTokenizer(std::move(steps)), {}});
}

bool looks_like_vocab_json(std::string_view text) {
  // {"token": 0: a number behind the first key.
  const size_t key = text.find('"');
  if (key == std::string_view::npos) return false;
  size_t end = key + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  const size_t value = end < text.size() ? text.find_first_not_of(" \t\r\n:", end + 1) : std::string_view::npos;
  return value != std::string_view::npos && text[value] >= '0' && text[value] <= '9';
}

}  // namespace strata::data
