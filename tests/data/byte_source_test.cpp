#include "data/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "data/compress.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_all(const std::filesystem::path& path, size_t block = 1 << 16) {
  const auto source = ByteSource::open(path);
  std::string all, part(block, '\0');
  while (const size_t got = source->read(part)) all.append(part, 0, got);
  EXPECT_EQ(source->read(part), 0u);
  EXPECT_EQ(source->stored_bytes(), static_cast<int64_t>(std::filesystem::file_size(path)));
  return all;
}

// Compresses to about a third; longer than the source's window when compressed.
std::string made_up(size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) text += std::to_string(philox(5, i)[0]) + " and ";
  return text;
}

TEST(ByteSource, TellsWhatAFileIsByItsBeginning) {
  const TempFolder folder;
  const std::string text = made_up(1 << 20);
  EXPECT_EQ(read_all(folder.write("a.txt", text)), text);
  EXPECT_EQ(read_all(folder.write("b.txt", test::gzip(text))), text);  // whatever the name
  EXPECT_EQ(read_all(folder.write("c.gz", test::zstd(text))), text);
  EXPECT_TRUE(ByteSource::open(folder / "b.txt")->compressed());
  EXPECT_FALSE(ByteSource::open(folder / "a.txt")->compressed());
  EXPECT_EQ(read_all(folder.write("empty", "")), "");
  EXPECT_EQ(read_all(folder.write("e.gz", test::gzip(""))), "");
  EXPECT_EQ(read_all(folder.write("e.zst", test::zstd(""))), "");
  for (const size_t block : {size_t{1000}, size_t{1} << 22})
    for (const char* name : {"b.txt", "c.gz"}) EXPECT_EQ(read_all(folder / name, block), text);
  EXPECT_EQ(read_all(folder.write("small.gz", test::gzip("some text")), 1), "some text");
  EXPECT_EQ(read_all(folder.write("small.zst", test::zstd("some text")), 1), "some text");
}

TEST(ByteSource, ReadsMembersAndFramesOneAfterAnother) {
  const TempFolder folder;
  const std::string a = made_up(300000), b = made_up(1000);
  EXPECT_EQ(read_all(folder.write("a.gz", test::gzip(a) + test::gzip("") + test::gzip(b))), a + b);
  EXPECT_EQ(read_all(folder.write("padded.gz", test::gzip(b) + std::string(512, '\0'))), b);
  const std::string skippable = std::string("\x50\x2a\x4d\x18\x03\x00\x00\x00", 8) + "abc";
  EXPECT_EQ(read_all(folder.write("a.zst", test::zstd(a) + skippable + test::zstd(b))), a + b);
  EXPECT_EQ(read_all(folder.write("b.zst", skippable + test::zstd(b))), b);
}

TEST(ByteSource, SkipsAsIfItHadRead) {
  const TempFolder folder;
  const std::string text = made_up(3 << 20);
  folder.write("plain", text);
  folder.write("gz", test::gzip(text));
  folder.write("zst", test::zstd(text));
  for (const char* name : {"plain", "gz", "zst"}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20, static_cast<int64_t>(text.size())}) {
      const auto source = ByteSource::open(folder / name);
      source->skip(bytes);
      std::string rest(text.size() + 1, '\0');
      rest.resize(source->read(rest));
      EXPECT_TRUE(rest == text.substr(static_cast<size_t>(bytes))) << name << " " << bytes;
    }
    EXPECT_THAT(
        message_of(Fault::input, [&] { ByteSource::open(folder / name)->skip(static_cast<int64_t>(text.size()) + 1); }),
        AllOf(HasSubstr(name), HasSubstr("shorter")));
  }
}

TEST(ByteSource, NamesWhereCompressedDataIsCutOff) {
  const TempFolder folder;
  const std::string text = made_up(2000);
  for (const std::string& whole : {test::gzip(text), test::zstd(text)}) {
    const bool gz = whole.starts_with("\x1f\x8b");
    for (size_t size = 4; size < whole.size(); size += 1 + size / 40) {
      const auto file = folder.write(gz ? "a.gz" : "a.zst", whole.substr(0, size));
      EXPECT_THAT(message_of(Fault::input, [&] { read_all(file); }),
                  AllOf(HasSubstr(file.string()), HasSubstr("truncated"), HasSubstr(gz ? "gzip" : "zstd"),
                        HasSubstr("byte " + std::to_string(size))));
    }
    // A second one that has only begun.
    const auto two = folder.write(gz ? "a.gz" : "a.zst", whole + whole.substr(0, 20));
    EXPECT_THAT(message_of(Fault::input, [&] { read_all(two); }), HasSubstr("truncated"));
  }
  for (const char* name : {"none.gz", "none.zst"}) {
    EXPECT_THAT(message_of(Fault::input, [&] { read_all(folder.write(name, "")); }), HasSubstr("is empty"));
    EXPECT_THAT(message_of(Fault::input, [&] { read_all(folder.write(name, "\x1f")); }), HasSubstr("does not begin"));
  }
}

TEST(ByteSource, NamesWhereCompressedDataIsDamaged) {
  const TempFolder folder;
  const std::string text = made_up(200000);
  for (const std::string& whole : {test::gzip(text), test::zstd(text)}) {
    const bool gz = whole.starts_with("\x1f\x8b");
    for (const size_t at : {whole.size() / 2, whole.size() - 3}) {  // the data, its checksum
      std::string bad = whole;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      const auto file = folder.write("bad", bad);
      EXPECT_THAT(
          message_of(Fault::input, [&] { read_all(file); }),
          AllOf(HasSubstr("bad"), HasSubstr(gz ? "damaged gzip data near byte" : "damaged zstd data near byte")));
    }
    const auto file = folder.write("bad", whole + "something behind it");
    EXPECT_THAT(message_of(Fault::input, [&] { read_all(file); }), HasSubstr("damaged"));
  }
}

TEST(ByteSource, RefusesWhatIsNoText) {
  const TempFolder folder;
  const auto message = [&](const std::string& name, std::string_view content) {
    return message_of(Fault::input, [&] { ByteSource::open(folder.write(name, content)); });
  };
  EXPECT_THAT(message("a.bz2", "BZh91AY"), AllOf(HasSubstr("a.bz2"), HasSubstr("bzip2")));
  EXPECT_THAT(message("a.xz",
                      "\xfd"
                      "7zXZ rest"),
              HasSubstr("xz"));
  EXPECT_THAT(message("a.zip", "PK\x03\x04rest"), HasSubstr("zip"));
  EXPECT_THAT(message("a.parquet", "PAR1"), HasSubstr("Parquet"));
  EXPECT_THAT(message("a.txt", std::string("\xff\xfeh\0", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(message("a.idx", std::string("MMIDIDX\0\0", 9)), HasSubstr("index"));
  EXPECT_THAT(message("a.tar", std::string(257, 'x') + "ustar" + std::string(300, 'x')), HasSubstr("tar archive"));
  EXPECT_THAT(message("a.gz", "just text"), HasSubstr("named as compressed"));
  EXPECT_THAT(message_of(Fault::input, [&] { ByteSource::open(folder / "none.txt"); }),
              AllOf(HasSubstr("none.txt"), HasSubstr("No such file")));
  EXPECT_THAT(message_of(Fault::input, [&] { ByteSource::open(folder / ""); }), HasSubstr("folder"));
}

}  // namespace
}  // namespace strata::data
