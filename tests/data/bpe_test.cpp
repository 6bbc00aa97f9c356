#include "data/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "core/random.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Bpe::Model letters() {
  Bpe::Model model;
  for (int32_t byte = 0; byte < 256; ++byte) model.bytes[static_cast<size_t>(byte)] = byte;
  return model;
}

std::vector<int32_t> encode(const Bpe& bpe, std::string_view piece) {
  std::vector<int32_t> ids;
  bpe.encode(piece, ids);
  return ids;
}

// The definition: join the best pair, the first of equals, as long as there is one.
std::vector<int32_t> by_definition(const Bpe::Model& model, std::string_view piece) {
  std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> ranks;
  for (size_t i = 0; i < model.merges.size(); ++i)
    ranks[{model.merges[i].left, model.merges[i].right}] = {i, model.merges[i].result};
  std::vector<int32_t> ids;
  for (const char c : piece) ids.push_back(model.bytes[static_cast<unsigned char>(c)]);
  for (;;) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto found = ranks.find({ids[i], ids[i + 1]}); found != ranks.end() && found->second.first < best) {
        best = found->second.first;
        at = i;
      }
    if (best == SIZE_MAX) return ids;
    ids[at] = ranks[{ids[at], ids[at + 1]}].second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  Bpe::Model model = letters();
  model.merges = {{'b', 'c', 256}, {'a', 'b', 257}, {'a', 'a', 258}, {258, 'a', 259}};
  const Bpe bpe(model);
  EXPECT_THAT(encode(bpe, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(encode(bpe, "abab"), ElementsAre(257, 257));
  EXPECT_THAT(encode(bpe, "aaa"), ElementsAre(259));
  EXPECT_THAT(encode(bpe, "aaaa"), ElementsAre(258, 258));
  EXPECT_THAT(encode(bpe, "x"), ElementsAre('x'));
  EXPECT_TRUE(encode(bpe, "").empty());
  std::vector<int32_t> ids = {7};
  bpe.encode("ab", ids);
  EXPECT_THAT(ids, ElementsAre(7, 257));
}

TEST(Bpe, AgreesWithTheDefinitionOnAllLengths) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Bpe::Model model = letters();
    std::map<std::pair<int32_t, int32_t>, int32_t> known;
    std::vector<int32_t> alphabet = {'a', 'b', 'c'};
    for (uint64_t i = 0; i < 40; ++i) {
      const Random4 r = philox(seed, i);
      const int32_t left = alphabet[r[0] % alphabet.size()], right = alphabet[r[1] % alphabet.size()];
      if (!known.emplace(std::pair{left, right}, 0).second) continue;
      const int32_t result = 256 + static_cast<int32_t>(model.merges.size());
      model.merges.push_back({left, right, result});
      alphabet.push_back(result);
    }
    const Bpe bpe(model);
    for (size_t length = 1; length < 150; length += length < 60 ? 1 : 13) {
      std::string piece;
      for (uint64_t i = 0; i < length; ++i) piece += static_cast<char>('a' + philox(seed + 1000, length, i)[0] % 3);
      const std::vector<int32_t> expected = by_definition(model, piece);
      ASSERT_EQ(encode(bpe, piece), expected) << "seed " << seed << " " << piece;
      ASSERT_EQ(encode(bpe, piece), expected) << "from the words kept";
    }
  }
}

TEST(Bpe, HalfAMegabyteOfOneLetterIsNoTrap) {
  Bpe::Model model = letters();
  for (int32_t i = 0; i < 10; ++i) model.merges.push_back({i == 0 ? 'a' : 255 + i, i == 0 ? 'a' : 255 + i, 256 + i});
  const std::vector<int32_t> ids = encode(Bpe(model), std::string(1 << 19, 'a'));
  EXPECT_EQ(ids, std::vector<int32_t>(1 << 9, 265));
}

TEST(Bpe, OfEqualPairsTheLastCounts) {
  Bpe::Model model = letters();
  model.merges = {{'a', 'b', 256}, {'b', 'c', 257}, {'a', 'b', 256}};
  EXPECT_THAT(encode(Bpe(model), "abc"), ElementsAre('a', 257));
}

TEST(Bpe, WholeWordsComeFirst) {
  Bpe::Model model = letters();
  model.merges = {{'b', 'c', 256}};
  model.whole_words = {{"abc", 300}, {"a", 'a'}, {std::string(40, 'x'), 301}};
  const Bpe bpe(model);
  EXPECT_THAT(encode(bpe, "abc"), ElementsAre(300));
  EXPECT_THAT(encode(bpe, "abca"), ElementsAre('a', 256, 'a'));
  EXPECT_THAT(encode(bpe, std::string(40, 'x')), ElementsAre(301));
  EXPECT_EQ(encode(bpe, std::string(41, 'x')).size(), 41u);
}

TEST(Bpe, BytesWithoutASymbol) {
  Bpe::Model model = letters();
  model.bytes['x'] = model.bytes['y'] = -1;
  std::vector<int32_t> ids;
  EXPECT_THAT(message_of(Fault::input, [&] { Bpe(model).encode("ax", ids); }), HasSubstr("0x78"));
  model.unknown = 999;
  EXPECT_THAT(encode(Bpe(model), "axyxb"), ElementsAre('a', 999, 999, 999, 'b'));
  model.fuse_unknown = true;
  EXPECT_THAT(encode(Bpe(model), "axyxbx"), ElementsAre('a', 999, 'b', 999));
}

TEST(Bpe, VocabulariesDoNotMixInAThreadsCache) {
  std::vector<Bpe> all;
  for (int32_t i = 0; i < 10; ++i) {
    Bpe::Model model = letters();
    model.merges = {{'a', 'b', 1000 + i}};
    all.emplace_back(model);
  }
  for (int round = 0; round < 3; ++round)
    for (int32_t i = 0; i < 10; ++i) EXPECT_THAT(encode(all[static_cast<size_t>(i)], "ab"), ElementsAre(1000 + i));
}

TEST(Bpe, FromSeveralThreads) {
  Bpe::Model model = letters();
  model.merges = {{'a', 'b', 256}, {256, 'a', 257}, {'b', 'b', 258}};
  const Bpe bpe(model);
  std::vector<std::string> pieces;
  for (uint64_t i = 0; i < 500; ++i) {
    std::string piece;
    for (uint64_t k = 0; k < 1 + i % 70; ++k) piece += static_cast<char>('a' + philox(5, i, k)[0] % 2);
    pieces.push_back(piece);
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (const std::string& piece : pieces) wrong[t] += encode(bpe, piece) != by_definition(model, piece);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace strata::data
