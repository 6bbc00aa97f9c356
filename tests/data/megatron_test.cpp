#include "data/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "data/survey.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The format, written down a second time: 3 sequences (2, 3 and 1 tokens) in 2 documents.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths = {2, 3, 1};
  std::vector<int64_t> pointers = {0, 4, 10};
  std::vector<int64_t> documents = {0, 2, 3};
  std::string bytes() const {
    std::string out = magic;
    put(out, version);
    put(out, code);
    put(out, static_cast<uint64_t>(lengths.size()));
    put(out, static_cast<uint64_t>(documents.size()));
    for (const int32_t value : lengths) put(out, value);
    for (const int64_t value : pointers) put(out, value);
    for (const int64_t value : documents) put(out, value);
    return out;
  }
};

template <typename T>
std::string tokens(std::initializer_list<T> ids) {
  std::string out;
  for (const T id : ids) put(out, id);
  return out;
}

const std::string bin = tokens<uint16_t>({5, 6, 7, 8, 65000, 0});

class Megatron : public ::testing::Test {
 protected:
  std::string refused(const std::string& idx, const std::string& bin_bytes = bin) {
    folder_.write("x.idx", idx);
    folder_.write("x.bin", bin_bytes);
    return message_of(Fault::input, [&] { MegatronFile file(folder_ / "x"); });
  }
  TempFolder folder_;
};

TEST_F(Megatron, ReadsAForeignFile) {
  folder_.write("x.idx", Index().bytes());
  folder_.write("x.bin", bin);
  for (const char* name : {"x", "x.bin", "x.idx"}) {
    const MegatronFile file(folder_ / name);
    EXPECT_EQ(file.prefix(), folder_ / "x");
    EXPECT_EQ(file.index().dtype(), DType::u16);
    EXPECT_EQ(file.tokens(), 6);
    EXPECT_EQ(file.index().sequences(), 3);
    EXPECT_EQ(file.index().documents(), 2);
    EXPECT_EQ(file.index().sequence_length(1), 3);
    EXPECT_EQ(file.index().sequence_begin(1), 2);
    EXPECT_EQ(file.index().document_begin(0), 0);
    EXPECT_EQ(file.index().document_begin(1), 5);
    EXPECT_EQ(file.index().document_begin(2), 6);
    std::vector<int32_t> part(3);
    file.read(2, 65001, part);
    EXPECT_THAT(part, ElementsAre(7, 8, 65000));
    EXPECT_EQ(survey(file, 65001).largest_id, 65000);
  }
}

TEST_F(Megatron, ReadsEveryIntegerType) {
  const auto check = [&](uint8_t code, const std::string& bytes, int64_t item) {
    Index index;
    index.code = code;
    index.pointers = {0, 2 * item, 5 * item};
    folder_.write("x.idx", index.bytes());
    folder_.write("x.bin", bytes);
    const MegatronFile file(folder_ / "x");
    std::vector<int32_t> all(6);
    file.read(0, 200, all);
    EXPECT_THAT(all, ElementsAre(1, 2, 3, 4, 5, 100)) << int{code};
  };
  check(1, tokens<uint8_t>({1, 2, 3, 4, 5, 100}), 1);
  check(2, tokens<int8_t>({1, 2, 3, 4, 5, 100}), 1);
  check(3, tokens<int16_t>({1, 2, 3, 4, 5, 100}), 2);
  check(4, tokens<int32_t>({1, 2, 3, 4, 5, 100}), 4);
  check(5, tokens<int64_t>({1, 2, 3, 4, 5, 100}), 8);
  check(8, tokens<uint16_t>({1, 2, 3, 4, 5, 100}), 2);
}

TEST_F(Megatron, RefusesIdsPastTheVocabulary) {
  folder_.write("x.idx", Index().bytes());
  folder_.write("x.bin", bin);
  const MegatronFile file(folder_ / "x");
  std::vector<int32_t> one(1);
  file.read(3, 65000, one);
  for (const auto& message : {message_of(Fault::input, [&] { file.read(4, 65000, one); }),
                              message_of(Fault::input, [&] { survey(file, 65000); })})
    EXPECT_THAT(message, AllOf(HasSubstr("x.bin"), HasSubstr("token 4"), HasSubstr("65000"), HasSubstr("0 to 64999")));
}

TEST_F(Megatron, RefusesNegativeAndHugeIds) {
  Index index;
  index.code = 5;
  index.lengths = {1, 1, 1};
  index.pointers = {0, 8, 16};
  folder_.write("x.idx", index.bytes());
  folder_.write("x.bin", tokens<int64_t>({3, -1, int64_t{1} << 40}));
  const MegatronFile file(folder_ / "x");
  std::vector<int32_t> one(1);
  EXPECT_THAT(message_of(Fault::input, [&] { file.read(1, 1000, one); }), HasSubstr("id -1"));
  EXPECT_THAT(message_of(Fault::input, [&] { file.read(2, int64_t{1} << 41, one); }), HasSubstr("1099511627776"));
}

TEST_F(Megatron, RefusesAnIndexCutAnywhere) {
  const std::string whole = Index().bytes();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(refused(whole.substr(0, size)), HasSubstr("x.idx")) << size;
  EXPECT_THAT(refused(whole.substr(0, 20)), AllOf(HasSubstr("truncated"), HasSubstr("20"), HasSubstr("34")));
  EXPECT_THAT(refused(whole.substr(0, 70)), AllOf(HasSubstr("70"), HasSubstr("94")));
  EXPECT_THAT(refused(whole + "x"), AllOf(HasSubstr("94"), HasSubstr("95")));
  EXPECT_THAT(refused(whole + "mod"), HasSubstr("multimodal"));
}

TEST_F(Megatron, RefusesTokensCutAnywhere) {
  for (size_t size = 0; size < bin.size(); ++size)
    EXPECT_THAT(refused(Index().bytes(), bin.substr(0, size)),
                AllOf(HasSubstr("x.bin"), HasSubstr("truncated"), HasSubstr("has " + std::to_string(size) + " bytes"),
                      HasSubstr("12")));
  EXPECT_THAT(refused(Index().bytes(), bin + "more"),
              AllOf(HasSubstr("has 16 bytes"), HasSubstr("do not belong together")));
}

TEST_F(Megatron, RefusesForeignHeaders) {
  Index index;
  index.magic = std::string("TNTIDX\0\0\0", 9);
  EXPECT_THAT(refused(index.bytes()), HasSubstr("TNTIDX"));
  index.magic = std::string("MMIDIDY\0\0", 9);
  EXPECT_THAT(refused(index.bytes()), HasSubstr("not a Megatron index"));
  EXPECT_THAT(refused("{\"json\": true, and more than thirty-four bytes of it}"), HasSubstr("not a Megatron index"));
  index = {};
  index.version = 2;
  EXPECT_THAT(refused(index.bytes()), AllOf(HasSubstr("version 2"), HasSubstr("1")));
  for (const uint8_t code : {uint8_t{0}, uint8_t{9}, uint8_t{255}}) {
    index = {};
    index.code = code;
    EXPECT_THAT(refused(index.bytes()), HasSubstr("unknown element type " + std::to_string(code)));
  }
  for (const uint8_t code : {uint8_t{6}, uint8_t{7}}) {
    index = {};
    index.code = code;
    EXPECT_THAT(refused(index.bytes()), HasSubstr("float"));
  }
}

TEST_F(Megatron, RefusesCountsThatOverflow) {
  for (const size_t at : {size_t{18}, size_t{26}})
    for (const uint64_t count : {uint64_t{1} << 60, ~uint64_t{0}, uint64_t{0x2000000000000003}}) {
      std::string bytes = Index().bytes();
      std::memcpy(bytes.data() + at, &count, sizeof count);
      EXPECT_THAT(refused(bytes), HasSubstr(std::to_string(count)));
    }
}

TEST_F(Megatron, RefusesEntriesThatDoNotFit) {
  Index index;
  index.lengths[1] = -3;
  EXPECT_THAT(refused(index.bytes()), AllOf(HasSubstr("sequence 1"), HasSubstr("-3")));
  index = {};
  index.pointers = {0, 10, 4};  // not in order
  EXPECT_THAT(refused(index.bytes()), AllOf(HasSubstr("sequence 1"), HasSubstr("byte 10"), HasSubstr("expected 4")));
  index = {};
  index.pointers[0] = 2;
  EXPECT_THAT(refused(index.bytes()), HasSubstr("expected 0"));
  index = {};
  index.lengths = {2, 3, 2000000000};  // a length past the end
  EXPECT_THAT(refused(index.bytes()), AllOf(HasSubstr("x.bin"), HasSubstr("has 12 bytes"), HasSubstr("4000000010")));
  index = {};
  index.documents = {1, 2, 3};
  EXPECT_THAT(refused(index.bytes()), HasSubstr("begins with 1"));
  index = {};
  index.documents = {0, 3, 2};
  EXPECT_THAT(refused(index.bytes()), AllOf(HasSubstr("entry 2"), HasSubstr("from 3 to 3")));
  index = {};
  index.documents = {0, 2, 4};
  EXPECT_THAT(refused(index.bytes()), AllOf(HasSubstr("entry 2"), HasSubstr("from 2 to 3")));
}

TEST_F(Megatron, CountsSequencesBehindTheLastBorderAsADocument) {
  for (const auto& [documents, count] : {std::pair<std::vector<int64_t>, int64_t>{{0, 2}, 2}, {{0}, 1}, {{}, 1}}) {
    Index index;
    index.documents = documents;
    folder_.write("x.idx", index.bytes());
    folder_.write("x.bin", bin);
    const MegatronFile file(folder_ / "x");
    EXPECT_EQ(file.index().documents(), count);
    EXPECT_EQ(file.index().document_begin(count), 6);
    EXPECT_EQ(file.index().document_begin(count - 1), count == 2 ? 5 : 0);
  }
}

TEST_F(Megatron, NamesMissingFiles) {
  EXPECT_THAT(message_of(Fault::input, [&] { MegatronFile file(folder_ / "none"); }),
              AllOf(HasSubstr("none.idx"), HasSubstr("strata data build")));
  folder_.write("half.bin", bin);
  EXPECT_THAT(message_of(Fault::input, [&] { MegatronFile file(folder_ / "half"); }), HasSubstr("half.idx"));
  folder_.write("other.idx", Index().bytes());
  EXPECT_THAT(message_of(Fault::input, [&] { MegatronFile file(folder_ / "other"); }), HasSubstr("other.bin"));
}

TEST_F(Megatron, WritesTheFormat) {
  MegatronWriter writer(folder_ / "x", DType::u16);
  writer.add(std::vector<int32_t>{5, 6});
  writer.add(std::vector<int32_t>{7, 8, 65000});
  writer.end_document();
  writer.end_document();  // nothing in it
  writer.add({});
  writer.end_document();
  writer.add(std::vector<int32_t>{0});
  EXPECT_EQ(writer.empty_documents(), 2);
  writer.commit();
  EXPECT_EQ(writer.documents(), 2);
  EXPECT_EQ(folder_.read("x.idx"), Index().bytes());
  EXPECT_EQ(folder_.read("x.bin"), bin);
  EXPECT_THAT(folder_.names(), ElementsAre("x.bin", "x.idx"));
}

TEST_F(Megatron, WritesAndReadsManyDocumentsOfEveryType) {
  for (const DType type : {DType::u8, DType::i8, DType::u16, DType::i16, DType::i32, DType::i64}) {
    MegatronWriter writer(folder_ / "x", type);
    int64_t total = 0;
    for (int d = 0; d < 300000; ++d) {  // more than a buffer of lengths and of tokens
      const std::vector<int32_t> ids(static_cast<size_t>(1 + d % 5), d % 128);
      writer.add(ids);
      writer.end_document();
      total += static_cast<int64_t>(ids.size());
      if (type != DType::u16 && d == 1000) break;
    }
    writer.commit();
    const MegatronFile file(folder_ / "x");
    EXPECT_EQ(file.tokens(), total);
    EXPECT_EQ(file.index().documents(), writer.documents());
    EXPECT_EQ(survey(file, 128).largest_id, 127);
    std::vector<int32_t> ids(4);
    file.read(file.index().document_begin(998), 128, ids);
    EXPECT_THAT(ids, ElementsAre(998 % 128, 998 % 128, 998 % 128, 998 % 128));
  }
}

TEST_F(Megatron, RefusesIdsThatDoNotFitTheType) {
  MegatronWriter narrow(folder_ / "x", DType::u16);
  EXPECT_THAT(message_of(Fault::input, [&] { narrow.add(std::vector<int32_t>{65536}); }),
              AllOf(HasSubstr("65536"), HasSubstr("u16")));
  MegatronWriter wide(folder_ / "y", DType::i32);
  EXPECT_THAT(message_of(Fault::input, [&] { wide.add(std::vector<int32_t>{-1}); }), HasSubstr("-1"));
}

TEST_F(Megatron, LeavesNothingWithoutCommitAndWhatWasThereBefore) {
  folder_.write("x.idx", "old index");
  folder_.write("x.bin", "old tokens");
  {
    MegatronWriter writer(folder_ / "x", DType::u16);
    writer.add(std::vector<int32_t>{1, 2, 3});
    writer.finish();
  }
  EXPECT_THAT(folder_.names(), ElementsAre("x.bin", "x.idx"));
  EXPECT_EQ(folder_.read("x.idx"), "old index");
  EXPECT_EQ(folder_.read("x.bin"), "old tokens");
  MegatronWriter writer(folder_ / "x", DType::u16);
  writer.add(std::vector<int32_t>{1, 2, 3});
  writer.commit();
  EXPECT_EQ(MegatronFile(folder_ / "x").tokens(), 3);
}

TEST(TokenType, FollowsMegatronsRule) {
  EXPECT_EQ(token_dtype(65499), DType::u16);
  EXPECT_EQ(token_dtype(65500), DType::i32);
}

}  // namespace
}  // namespace strata::data
