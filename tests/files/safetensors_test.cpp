#include "files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "files/number_formats.h"
#include "support/scratch.h"

namespace strata::files {
namespace {

using test::error_of;
using test::Scratch;
using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A file with this header, as it stands, and `data` after it.
std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &size, 8);
  return length + header + data;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<StoredTensor> parse(const std::string& file) { return parse_safetensors(bytes_of(file), "f"); }

std::string error_in(const std::string& file) {
  return error_of([&] { parse(file); });
}

/// {"a": {...}} with one description.
std::string error_in_entry(const std::string& entry, const std::string& data = "") {
  return error_in(file_of("{\"a\":" + entry + "}", data));
}

std::string described(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsNamesTypesShapesAndBytes) {
  const std::string file = file_of(
      R"({"__metadata__":{"format":"pt","x":"y"},"b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"F32","shape":[3,0],"data_offsets":[12,12]}}  )",
      std::string("\0\0\x80\x3f\1\0\0\0\xff\xff\xff\xff", 12));
  std::map<std::string, std::string> metadata;
  const std::vector<StoredTensor> tensors = parse_safetensors(bytes_of(file), "f", &metadata);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_THAT(tensors[0].shape, IsEmpty());
  EXPECT_EQ(tensors[0].elements(), 1);
  EXPECT_THAT(tensors[0].f32(), ElementsAre(1.0f));
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_THAT(tensors[1].i32(), ElementsAre(1, -1));
  EXPECT_EQ(tensors[2].name, "none");
  EXPECT_THAT(tensors[2].f32(), IsEmpty());
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"x", "y"}}));
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  EXPECT_THAT(parse(file_of("{}")), IsEmpty());
  EXPECT_THAT(parse(file_of("{}      ")), IsEmpty());
}

TEST(Safetensors, KnowsTheBitsOfEveryType) {
  const std::pair<const char*, int> types[] = {
      {"F64", 64}, {"F32", 32},    {"F16", 16},    {"BF16", 16},      {"I64", 64},    {"I32", 32},
      {"I16", 16}, {"I8", 8},      {"U8", 8},      {"U16", 16},       {"U32", 32},    {"U64", 64},
      {"BOOL", 8}, {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8},    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E5M2FNUZ", 8}};
  for (const auto& [name, bits] : types) {
    const std::string data(static_cast<size_t>(bits), 'x');  // 8 elements
    const auto tensors =
        parse(file_of("{\"a\":" + described(name, "[2,4]", "[0," + std::to_string(bits) + "]") + "}", data));
    EXPECT_EQ(tensors.at(0).stored_dtype, name);
    EXPECT_EQ(tensors.at(0).bytes.size(), data.size());
  }
  EXPECT_THAT(error_in_entry(described("F4", "[3]", "[0,1]"), "x"), HasSubstr("no whole number of bytes"));
}

TEST(Safetensors, RefusesTruncatedAndForeignFiles) {
  EXPECT_THAT(error_in(""), AllOf(StartsWith("f: "), HasSubstr("0 bytes")));
  EXPECT_THAT(error_in("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(error_in("PK\3\4 a zip file, as torch saves"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error_in(file_of(std::string("\x80\x02ctorch", 8))), HasSubstr("does not begin with an opening brace"));
  EXPECT_THAT(error_in(file_of("")), HasSubstr("does not begin with an opening brace"));
  EXPECT_THAT(error_in(file_of(" {}")), HasSubstr("does not begin with an opening brace"));
  EXPECT_THAT(error_in(file_of("[]")), HasSubstr("does not begin with an opening brace"));
  std::string cut = file_of(R"({"a": 1})");
  cut.resize(10);
  EXPECT_THAT(error_in(cut), HasSubstr("truncated: the header ends at byte 16, and the file has 10"));
}

TEST(Safetensors, LimitsTheHeader) {
  std::string file(8, '\0');
  const uint64_t size = 100'000'001;
  std::memcpy(file.data(), &size, 8);
  EXPECT_THAT(error_in(file + "{}"), HasSubstr("header of 100000001 bytes, and the limit is 100000000"));
  EXPECT_THAT(error_in(std::string(8, '\xff') + "{}"), HasSubstr("header of 18446744073709551615 bytes"));
}

TEST(Safetensors, RefusesHeadersThatAreNoJson) {
  EXPECT_THAT(error_in(file_of("{\"a\"}")), HasSubstr("f (header):1:5: not valid JSON"));
  EXPECT_THAT(error_in(file_of("{} x")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_in(file_of(std::string("{}\0\0", 4))), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_in(file_of("{\"\xff\": 1}")), HasSubstr("not valid JSON"));
  const std::string a = described("U8", "[1]", "[0,1]");
  EXPECT_THAT(error_in(file_of("{\"a\":" + a + ",\"a\":" + a + "}", "x")), HasSubstr("key \"a\" is given twice"));
  EXPECT_THAT(error_in(file_of(R"({"__metadata__":{"k":"1","k":"2"}})")), HasSubstr("key \"k\" is given twice"));
  EXPECT_THAT(error_in(file_of("{\"a\":[[[[[[]]]]]]}")), HasSubstr("nested deeper"));
}

TEST(Safetensors, RefusesBadDescriptions) {
  const std::string a = "f: tensor \"a\": ";
  EXPECT_THAT(error_in_entry("3"), StartsWith(a + "described by 3"));
  EXPECT_THAT(error_in_entry("{}"), StartsWith(a + "its description lacks dtype"));
  EXPECT_THAT(error_in_entry(R"({"dtype":"F32","shape":[1]})"), StartsWith(a + "its description lacks data_offsets"));
  EXPECT_THAT(error_in_entry(R"({"dtype":"F32","data_offsets":[0,4]})"), StartsWith(a + "its description lacks shape"));
  EXPECT_THAT(error_in_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1})", "1234"),
              StartsWith(a + "unknown key \"more\""));
  EXPECT_THAT(error_in_entry(described("F99", "[1]", "[0,4]"), "1234"), StartsWith(a + "unknown dtype \"F99\""));
  EXPECT_THAT(error_in_entry(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})", "1234"),
              StartsWith(a + "unknown dtype 7"));
  EXPECT_THAT(error_in_entry(R"({"dtype":"","shape":[1],"data_offsets":[0,4]})", "1234"),
              StartsWith(a + "unknown dtype \"\""));
  for (const char* shape :
       {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[18446744073709551615]", "[9223372036854775808]", "[true]"})
    EXPECT_THAT(error_in_entry(described("U8", shape, "[0,1]"), "x"), StartsWith(a + "shape holds ")) << shape;
  EXPECT_THAT(error_in_entry(described("U8", "1", "[0,1]"), "x"), StartsWith(a + "shape is 1"));
  for (const char* offsets :
       {"[0]", "[0,1,2]", "0", "[1,0]", "[-1,0]", "[0,1.0]", "[null,1]", "{}", "[0,9223372036854775808]"})
    EXPECT_THAT(error_in_entry(described("U8", "[1]", offsets), "x"), HasSubstr("data_offsets must be")) << offsets;
  EXPECT_THAT(error_in_entry(described("F32", "[2,3]", "[0,20]"), std::string(20, 'x')),
              StartsWith(a + "data_offsets [0, 20] hold 20 bytes, but shape [2, 3] of F32 takes 24"));
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  for (const char* shape :
       {"[4611686018427387904,4]", "[4294967296,4294967296]", "[9223372036854775807]", "[2,2,2305843009213693952]"})
    EXPECT_THAT(error_in_entry(described("F32", shape, "[0,4]"), "1234"), HasSubstr("overflows")) << shape;
  // An empty tensor has no bytes however large its other extents are.
  const auto tensors =
      parse(file_of("{\"a\":" + described("F32", "[9223372036854775807,9223372036854775807,0]", "[0,0]") + "}"));
  EXPECT_EQ(tensors[0].elements(), 0);
}

TEST(Safetensors, RefusesBadMetadata) {
  EXPECT_THAT(error_in(file_of(R"({"__metadata__":[]})")), HasSubstr("__metadata__ is a list"));
  EXPECT_THAT(error_in(file_of(R"({"__metadata__":{"k":1}})")), HasSubstr("__metadata__ key \"k\" is 1"));
}

TEST(Safetensors, RefusesHolesOverlapsAndLooseEnds) {
  const auto two = [](const std::string& a, const std::string& b) {
    return "{\"a\":" + described("U8", "[4]", a) + ",\"b\":" + described("U8", "[4]", b) + "}";
  };
  EXPECT_EQ(parse(file_of(two("[4,8]", "[0,4]"), "bbbbaaaa")).size(), 2u);  // any order of names
  EXPECT_THAT(error_in(file_of(two("[0,4]", "[2,6]"), "aabbbb")), HasSubstr("\"a\" and \"b\" overlap in bytes 2 to 4"));
  EXPECT_THAT(error_in(file_of(two("[0,4]", "[0,4]"), "aaaa")), HasSubstr("\"a\" and \"b\" overlap in bytes 0 to 4"));
  EXPECT_THAT(error_in(file_of(two("[0,4]", "[5,9]"), "aaaa-bbbb")),
              HasSubstr("bytes 4 to 5, before tensor \"b\", belong to no tensor"));
  EXPECT_THAT(error_in(file_of(two("[1,5]", "[5,9]"), "-aaaabbbb")),
              HasSubstr("bytes 0 to 1, before tensor \"a\", belong to no tensor"));
  EXPECT_THAT(error_in(file_of(two("[0,4]", "[4,8]"), "aaaabbb")), HasSubstr("truncated: its tensors end at byte"));
  EXPECT_THAT(error_in(file_of(two("[0,4]", "[4,8]"), "aaaabbbb-")),
              HasSubstr("1 bytes after the last tensor belong to none"));
  EXPECT_THAT(error_in(file_of("{}", "x")), HasSubstr("1 bytes after the last tensor"));
  const std::string empty_inside =
      "{\"a\":" + described("U8", "[4]", "[0,4]") + ",\"b\":" + described("U8", "[0]", "[2,2]") + "}";
  EXPECT_THAT(error_in(file_of(empty_inside, "aaaa")), HasSubstr("\"a\" and \"b\" overlap"));
}

/// A file with a few tensors of several types.
std::string sample() {
  Scratch scratch;
  const std::vector<TensorSpec> specs = {{"wide", DType::f64, {3}},
                                         {"matrix", DType::f32, {2, 5}},
                                         {"none", DType::f32, {0, 4}},
                                         {"short", DType::bf16, {3}},
                                         {"flag", DType::u8, {1}}};
  SafetensorsWriter writer(scratch / "s", specs, {{"format", "pt"}});
  std::string data;
  for (int i = 0; i < 24 + 40 + 6 + 1; ++i) data += static_cast<char>(i * 7 + 1);
  writer.write(bytes_of(data));
  writer.commit();
  return slurp(scratch / "s");
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string whole = sample();
  EXPECT_EQ(parse(whole).size(), 5u);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(error_in(whole.substr(0, size)), HasSubstr("truncated")) << size;
}

TEST(Safetensors, ABitFlippedInTheHeaderIsRefusedOrReadWithinTheFile) {
  const std::string whole = sample();
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  int refused = 0, accepted = 0;
  for (size_t i = 0; i < 8 + header; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      try {
        for (const StoredTensor& tensor : parse(flipped)) {
          // What passes may have another name or type of the same size, never other bytes than the file's.
          EXPECT_GE(reinterpret_cast<const char*>(tensor.bytes.data()), flipped.data());
          EXPECT_LE(reinterpret_cast<const char*>(tensor.bytes.data() + tensor.bytes.size()),
                    flipped.data() + flipped.size());
        }
        ++accepted;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), StartsWith("f"));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 3 * accepted);  // letters of names are most of what may change unseen
}

TEST(StoredTensor, ChecksTheTypeAskedFor) {
  const std::string file = sample();
  const auto tensors = parse(file);
  const auto& wide = tensors[0];
  ASSERT_EQ(wide.name, "wide");
  EXPECT_EQ(wide.f64().size(), 3u);
  EXPECT_THAT(error_of([&] { wide.f32(); }), HasSubstr("f: tensor \"wide\" is F64, expected F32"));
  EXPECT_THAT(error_of([&] { wide.i32(); }), HasSubstr("tensor \"wide\" is F64, expected I32"));
}

TEST(StoredTensor, ConvertsToFloat) {
  Scratch scratch;
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -2.25f, 65504.0f, 0x1p-24f};
  SafetensorsWriter writer(scratch / "s", {{"d", DType::f64, {6}},
                                           {"f", DType::f32, {6}},
                                           {"b", DType::bf16, {6}},
                                           {"h", DType::f16, {6}},
                                           {"i", DType::i32, {1}}});
  for (const float value : values) {
    const double wide = value;
    writer.write(std::as_bytes(std::span(&wide, 1)));
  }
  writer.write(std::span<const float>(values));
  for (const auto narrow : {float_to_bf16, float_to_f16})
    for (const float value : values) {
      const uint16_t bits = narrow(value);
      writer.write(std::as_bytes(std::span(&bits, 1)));
    }
  writer.write(std::span<const int32_t>(std::vector<int32_t>{3}));
  writer.commit();

  const Safetensors tensors = Safetensors::open_file(scratch / "s");
  for (const char* name : {"d", "f", "h"}) {
    std::vector<float> out(6);
    tensors.at(name).to_float(0, out);
    EXPECT_EQ(out, values) << name;
    EXPECT_TRUE(std::signbit(out[1])) << name;
    std::vector<float> middle(2);
    tensors.at(name).to_float(2, middle);
    EXPECT_THAT(middle, ElementsAre(1.5f, -2.25f)) << name;
  }
  std::vector<float> out(6);
  tensors.at("b").to_float(0, out);
  EXPECT_EQ(out[3], -2.25f);
  EXPECT_EQ(out[4], 65536.0f);  // rounded when it was written
  EXPECT_THAT(error_of([&] { tensors.at("i").to_float(0, std::span(out).first(1)); }),
              HasSubstr("tensor \"i\" is I32"));
}

TEST(SafetensorsWriter, WritesWhatTheReferenceWriterDoes) {
  // The bytes that the format's own library writes for one F32 tensor "attn0" of shape [1, 1, 2, 3].
  Scratch scratch;
  SafetensorsWriter writer(scratch / "s", {{"attn0", DType::f32, {1, 1, 2, 3}}});
  writer.write(std::span<const float>(std::vector<float>{0, 1, 2, 3, 4, 5}));
  writer.commit();
  std::string header = R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}})";
  header.resize(72, ' ');
  std::string data(24, '\0');
  const float values[] = {0, 1, 2, 3, 4, 5};
  std::memcpy(data.data(), values, 24);
  EXPECT_EQ(slurp(scratch / "s"), file_of(header, data));
}

TEST(SafetensorsWriter, AlignsTheDataAndEscapesNames) {
  Scratch scratch;
  for (size_t length = 1; length < 20; ++length) {
    const std::string name = std::string(length, 'n') + "\"\\\n\u00e9";
    SafetensorsWriter writer(scratch / "s", {{name, DType::u8, {2}}}, {{"a\"", "b"}});
    writer.write(bytes_of("xy"));
    writer.commit();
    const std::string file = slurp(scratch / "s");
    EXPECT_EQ((file.size() - 2) % 8, 0u);
    const Safetensors read = Safetensors::open_file(scratch / "s");
    EXPECT_EQ(read.at(name).bytes.size(), 2u);
    EXPECT_EQ(read.metadata().at("a\""), "b");
  }
}

TEST(SafetensorsWriter, LeavesNothingBehindWithoutCommit) {
  Scratch scratch;
  {
    SafetensorsWriter writer(scratch / "s", {{"a", DType::u8, {2}}});
    writer.write(bytes_of("x"));
    EXPECT_THROW(writer.commit(), InternalError);               // a byte is missing
    EXPECT_THROW(writer.write(bytes_of("xy")), InternalError);  // one too many
  }
  EXPECT_THAT(scratch.entries(), IsEmpty());
  EXPECT_THROW(SafetensorsWriter(scratch / "s", {{"a", DType::u8, {2}}, {"a", DType::u8, {2}}}), InternalError);
  EXPECT_THAT(scratch.entries(), IsEmpty());
}

TEST(Shards, FillUpInOrder) {
  const std::vector<TensorSpec> specs = {{"a", DType::u8, {4}}, {"b", DType::u8, {6}}, {"c", DType::u8, {20}},
                                         {"d", DType::u8, {1}}, {"e", DType::u8, {0}}, {"f", DType::u8, {9}}};
  EXPECT_THAT(plan_shards(specs, 10), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3, 4, 5)));
  EXPECT_THAT(plan_shards(specs, 1000), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)));
  EXPECT_THAT(plan_shards({}, 10), ElementsAre(IsEmpty()));
}

/// Writes `count` u8 tensors t0, t1, ... of 4 bytes each, "iiii", in shards of at most `limit` bytes.
void write_folder(const std::filesystem::path& folder, int count, int64_t limit) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < count; ++i) specs.push_back({"t" + std::to_string(i), DType::u8, {4}});
  auto shards = plan_shards(specs, limit);
  ShardedSafetensorsWriter writer(folder, specs, shards, {{"format", "pt"}});
  while (writer.next() < specs.size()) {
    const std::string text(2, static_cast<char>('0' + writer.next()));
    writer.write(bytes_of(text));
    writer.write(bytes_of(text));
  }
  writer.commit();
}

TEST(ShardedFolder, OneShardIsOneFile) {
  Scratch scratch;
  write_folder(scratch.path(), 3, 100);
  EXPECT_THAT(scratch.entries(), ElementsAre("model.safetensors"));
  EXPECT_EQ(Safetensors::open_folder(scratch.path()).tensors().size(), 3u);
}

TEST(ShardedFolder, SeveralShardsHaveAnIndex) {
  Scratch scratch;
  write_folder(scratch.path(), 5, 8);
  EXPECT_THAT(scratch.entries(), ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                             "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  EXPECT_THAT(slurp(scratch / "model.safetensors.index.json"),
              AllOf(HasSubstr("\"total_size\": 20"), HasSubstr("\"t4\": \"model-00003-of-00003.safetensors\"")));
  const Safetensors read = Safetensors::open_folder(scratch.path());
  EXPECT_EQ(read.metadata().at("format"), "pt");
  for (int i = 0; i < 5; ++i) {
    const StoredTensor& tensor = read.at("t" + std::to_string(i));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor.bytes.data()), 4),
              std::string(4, static_cast<char>('0' + i)));
    EXPECT_THAT(tensor.file, HasSubstr("model-0000" + std::to_string(i / 2 + 1)));
  }
}

TEST(ShardedFolder, EmptyTensorsNeedNoBytes) {
  Scratch scratch;
  const std::vector<TensorSpec> specs = {{"a", DType::f32, {0}}, {"b", DType::u8, {1}}, {"c", DType::f32, {2, 0}}};
  ShardedSafetensorsWriter writer(scratch.path(), specs, plan_shards(specs, 100));
  EXPECT_EQ(writer.next(), 1u);
  writer.write(bytes_of("x"));
  EXPECT_EQ(writer.next(), 3u);
  writer.commit();
  EXPECT_EQ(Safetensors::open_folder(scratch.path()).tensors().size(), 3u);
}

TEST(ShardedFolder, RefusesToCommitHalf) {
  Scratch scratch;
  const std::vector<TensorSpec> specs = {{"a", DType::u8, {1}}, {"b", DType::u8, {1}}};
  {
    ShardedSafetensorsWriter writer(scratch.path(), specs, plan_shards(specs, 100));
    writer.write(bytes_of("x"));
    EXPECT_THROW(writer.commit(), InternalError);
  }
  EXPECT_THAT(scratch.entries(), IsEmpty());
}

TEST(Folder, NamesWhatIsMissing) {
  Scratch scratch;
  EXPECT_THAT(error_of([&] { Safetensors::open_folder(scratch / "none"); }), HasSubstr("none: no such folder"));
  EXPECT_THAT(error_of([&] { Safetensors::open_folder(scratch.path()); }),
              HasSubstr("has neither model.safetensors nor"));
  spill(scratch / "pytorch_model.bin", "");
  EXPECT_THAT(error_of([&] { Safetensors::open_folder(scratch.path()); }), HasSubstr("pytorch_model.bin is not read"));
  write_folder(scratch.path(), 1, 10);
  EXPECT_THAT(error_of([&] { Safetensors::open_folder(scratch.path()).at("t2"); }),
              HasSubstr("model.safetensors: has no tensor \"t2\" (did you mean \"t0\"?)"));
}

class BrokenIndex : public ::testing::Test {
 protected:
  void SetUp() override {
    write_folder(scratch_.path(), 4, 8);
    index_ = slurp(scratch_ / "model.safetensors.index.json");
  }
  std::string error() {
    return error_of([&] { Safetensors::open_folder(scratch_.path()); });
  }
  /// The error after replacing `from` by `to` in the index.
  std::string error_after(const std::string& from, const std::string& to) {
    std::string changed = index_;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    spill(scratch_ / "model.safetensors.index.json", changed);
    return error();
  }
  Scratch scratch_;
  std::string index_;
};

TEST_F(BrokenIndex, ShardThatIsNotThere) {
  std::filesystem::remove(scratch_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("model.safetensors.index.json: names the shard \"model-00002-of-00002.safetensors\""),
                    HasSubstr("not in the folder")));
}

TEST_F(BrokenIndex, TensorThatIsNotThere) {
  EXPECT_THAT(
      error_after("\"t3\"", "\"other\""),
      AllOf(HasSubstr("puts tensor \"other\" in \"model-00002-of-00002.safetensors\""), HasSubstr("does not hold it")));
}

TEST_F(BrokenIndex, TensorThatIsNotListed) {
  EXPECT_THAT(error_after(",\n    \"t3\": \"model-00002-of-00002.safetensors\"", ""),
              AllOf(HasSubstr("model-00002-of-00002.safetensors: tensor \"t3\" is not in the weight_map")));
}

TEST_F(BrokenIndex, TensorInAnotherShard) {
  EXPECT_THAT(
      error_after("\"t3\": \"model-00002", "\"t3\": \"model-00001"),
      AllOf(HasSubstr("puts tensor \"t3\" in \"model-00001-of-00002.safetensors\""), HasSubstr("but it is in")));
}

TEST_F(BrokenIndex, TensorInTwoShards) {
  Scratch other;
  write_folder(other.path(), 1, 10);  // holds t0
  std::filesystem::copy_file(other / "model.safetensors", scratch_ / "more.safetensors");
  EXPECT_THAT(error_after("\"t3\": \"model-00002-of-00002.safetensors\"",
                          "\"t3\": \"model-00002-of-00002.safetensors\", \"x\": \"more.safetensors\""),
              AllOf(HasSubstr("tensor \"t0\" is in"), HasSubstr("as well")));
}

TEST_F(BrokenIndex, TruncatedShard) {
  const auto shard = scratch_ / "model-00002-of-00002.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  EXPECT_THAT(error(), AllOf(HasSubstr("model-00002-of-00002.safetensors: truncated")));
}

TEST_F(BrokenIndex, NamesOutsideTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\u0000b"})
    EXPECT_THAT(error_after("\"t3\": \"model-00002-of-00002.safetensors\"", "\"t3\": \"" + std::string(name) + "\""),
                HasSubstr("no plain file name"))
        << name;
}

TEST_F(BrokenIndex, WrongTypesAndSyntax) {
  EXPECT_THAT(error_after("\"t3\": \"model-00002-of-00002.safetensors\"", "\"t3\": 2"), HasSubstr("puts \"t3\" in 2"));
  EXPECT_THAT(error_after("\"t3\"", "\"t2\""), HasSubstr("key \"t2\" is given twice"));
  EXPECT_THAT(error_after("weight_map", "weights"), HasSubstr("has no weight_map object"));
  spill(scratch_ / "model.safetensors.index.json", "[]");
  EXPECT_THAT(error(), HasSubstr("has no weight_map object"));
  spill(scratch_ / "model.safetensors.index.json", index_.substr(0, index_.size() / 2));
  EXPECT_THAT(error(), HasSubstr("not valid JSON"));
}

TEST_F(BrokenIndex, ASingleFileGoesFirst) {
  // As transformers has it.
  std::filesystem::remove(scratch_ / "model-00001-of-00002.safetensors");
  write_folder(scratch_.path(), 2, 100);
  EXPECT_EQ(Safetensors::open_folder(scratch_.path()).tensors().size(), 2u);
}

TEST(SharedVectors, ReferencesAreReadByType) {
  STRATA_NEED_SHARED("vectors/gpt2-tiny/reference.safetensors");
  const Safetensors reference =
      Safetensors::open_file(test::shared_folder() / "vectors/gpt2-tiny/reference.safetensors");
  EXPECT_THAT(reference.at("tokens").shape, ElementsAre(11, 4, 33));
  EXPECT_EQ(reference.at("tokens").i32().size(), 11u * 4 * 33);
  EXPECT_EQ(reference.at("train_losses").f64().size(), 10u);
  EXPECT_EQ(reference.at("loss").f32().size(), 1u);
  EXPECT_TRUE(std::isfinite(reference.at("loss").f32()[0]));
  EXPECT_THAT(error_of([&] { reference.at("tokens").f32(); }), HasSubstr("I32, expected F32"));
}

}  // namespace
}  // namespace strata::files
