#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/random.h"
#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Source `name` holds the tokens first, first + 1, ... in documents of 7.
void write_source(const TempFolder& folder, const std::string& name, int32_t first, int32_t count) {
  MegatronWriter writer(folder / name, DType::i32);
  for (int32_t at = 0; at < count; at += 7) {
    std::vector<int32_t> ids(static_cast<size_t>(std::min(7, count - at)));
    std::iota(ids.begin(), ids.end(), first + at);
    writer.add(ids);
    writer.end_document();
  }
  writer.commit();
}

std::vector<int32_t> sample(const Dataset& data, int64_t index) {
  std::vector<int32_t> tokens(static_cast<size_t>(data.sequence() + 1));
  data.sample(index, tokens);
  return tokens;
}

TEST(Blend, KeepsEverySourceAtItsShareAndMissesNone) {
  for (const std::vector<double>& weights : std::vector<std::vector<double>>{{1},
                                                                             {1, 1},
                                                                             {2, 1},
                                                                             {0.7, 0.2, 0.1},
                                                                             {1, 1000},
                                                                             {1e-7, 1, 1e-7},
                                                                             {3, 0, 5},
                                                                             {1, 1, 1, 1, 1, 1, 1},
                                                                             {0.35, 0.35, 0.3}}) {
    const Blend blend(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<int64_t> given(weights.size());
    for (int64_t g = 0; g < 5000; ++g) {
      const Blend::Place place = blend.at(g);
      const auto source = static_cast<size_t>(place.source);
      ASSERT_EQ(place.index, given[source]) << g;  // each source's samples in order, none twice, none left out
      ++given[source];
      for (size_t i = 0; i < weights.size(); ++i)
        ASSERT_LE(std::abs(static_cast<double>(given[i]) - weights[i] / sum * static_cast<double>(g + 1)),
                  0.5 * (1 + static_cast<double>(weights.size())))
            << g;
    }
  }
}

TEST(Blend, GoesOnTheSameFarOut) {
  const std::vector<double> weights = {0.6, 0.3, 1e-9, 0.1};
  const Blend blend(weights);
  const int64_t period = int64_t{1} << 30;
  EXPECT_EQ(blend.parts(0) + blend.parts(1) + blend.parts(2) + blend.parts(3), period);
  EXPECT_EQ(blend.parts(2), 1);
  for (const int64_t start : {int64_t{0}, period / 2 - 50, period - 100, 3 * period - 50, int64_t{1} << 50}) {
    std::map<int, int64_t> next;
    for (int64_t g = start; g < start + 200; ++g) {
      const Blend::Place place = blend.at(g);
      if (next.contains(place.source)) {
        ASSERT_EQ(place.index, next[place.source]) << g;
      }
      next[place.source] = place.index + 1;
      const double share = static_cast<double>(blend.parts(place.source)) / static_cast<double>(period);
      ASSERT_NEAR(static_cast<double>(place.index), share * static_cast<double>(g), 3) << g;
    }
  }
  // Periods repeat.
  EXPECT_EQ(blend.at(12345).source, blend.at(period + 12345).source);
  EXPECT_EQ(blend.at(12345).index + blend.parts(blend.at(12345).source), blend.at(period + 12345).index);
}

TEST(Blend, RefusesWeightsThatMakeNoShares) {
  const auto refused = [](std::vector<double> weights) {
    return message_of(Fault::input, [&] { Blend blend(weights); });
  };
  EXPECT_THAT(refused({0, 0}), HasSubstr("sum to 0"));
  EXPECT_THAT(refused({1, -0.5}), AllOf(HasSubstr("weight 2"), HasSubstr("-0.5")));
  EXPECT_THAT(refused({std::nan("")}), HasSubstr("nan"));
  EXPECT_THAT(refused({1, INFINITY}), HasSubstr("inf"));
  EXPECT_THAT(refused({1e308, 1e308}), HasSubstr("sum to inf"));
  EXPECT_THAT(refused({}), HasSubstr("sum"));
}

TEST(Dataset, SamplesOverlapByOneTokenAndCoverTheStream) {
  const TempFolder folder;
  write_source(folder, "a", 0, 101);
  const std::vector<Source> sources = {{folder / "a"}};
  const Dataset data(sources, 10, 1, 1000, Order::sequential);
  EXPECT_EQ(data.samples(), 10);  // (101 - 1) / 10
  EXPECT_EQ(data.tokens(), 101);
  EXPECT_THAT(sample(data, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(sample(data, 9), ElementsAre(90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100));
  EXPECT_EQ(sample(data, 10), sample(data, 0));
  EXPECT_EQ(data.locate(23).epoch, 2);
}

TEST(Dataset, ShufflesEveryEpochAnewAndMissesNothing) {
  const TempFolder folder;
  write_source(folder, "a", 0, 1001);
  const std::vector<Source> sources = {{folder / "a"}};
  const Dataset data(sources, 10, 42, 1001);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 100; ++i) {
      const Dataset::Place place = data.locate(epoch * 100 + i);
      EXPECT_EQ(place.epoch, epoch);
      EXPECT_EQ(sample(data, epoch * 100 + i).front(), place.sample * 10);
      order.push_back(place.sample);
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100u);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    epochs.push_back(order);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Dataset, OrderFollowsSeedAndNameOnly) {
  const TempFolder folder, elsewhere;
  write_source(folder, "a", 0, 1001);
  write_source(elsewhere, "a", 0, 1001);
  write_source(folder, "b", 0, 1001);
  const auto order = [](const Dataset& data) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 150; ++i) all.push_back(data.locate(i).sample);
    return all;
  };
  const auto made = [&](const std::filesystem::path& prefix, uint64_t seed) {
    const std::vector<Source> sources = {{prefix}};
    return order(Dataset(sources, 10, seed, 1001));
  };
  EXPECT_EQ(made(folder / "a", 1), made(folder / "a.bin", 1));
  EXPECT_EQ(made(folder / "a", 1), made(elsewhere / "a", 1));
  EXPECT_NE(made(folder / "a", 1), made(folder / "a", 2));
  EXPECT_NE(made(folder / "a", 1), made(folder / "b", 1));
  // Asked in any order, by any number of readers.
  const std::vector<Source> sources = {{folder / "a"}};
  const Dataset first(sources, 10, 1, 1001), second(sources, 10, 1, 1001);
  for (int64_t i = 149; i >= 0; --i) EXPECT_EQ(sample(first, i), sample(second, i));
}

TEST(Dataset, BlendsSourcesByWeight) {
  const TempFolder folder;
  write_source(folder, "a", 0, 201);
  write_source(folder, "b", 10000, 5001);
  const std::vector<Source> sources = {{folder / "a", 0.25}, {folder / "b", 0.75}};
  const Dataset data(sources, 10, 1, 20000);
  std::map<int32_t, int> from_a;
  int count = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const int32_t first = sample(data, i).front();
    if (first >= 10000) continue;
    ++count;
    ++from_a[first];
  }
  EXPECT_EQ(count, 100);
  EXPECT_EQ(from_a.size(), 20u);
  for (const auto& [first, times] : from_a) EXPECT_EQ(times, 5) << first;  // five epochs of the small source
}

TEST(Dataset, RefusesTooLittleTextAndIdsPastTheVocabulary) {
  const TempFolder folder;
  write_source(folder, "a", 0, 10);
  write_source(folder, "b", 0, 11);
  const auto refused = [&](std::vector<Source> sources) {
    return message_of(Fault::input, [&] { Dataset data(sources, 10, 1, 1000); });
  };
  EXPECT_THAT(refused({{folder / "a"}}), AllOf(HasSubstr("/a:"), HasSubstr("10 tokens"), HasSubstr("11")));
  EXPECT_THAT(refused({}), HasSubstr("no data source"));
  EXPECT_THAT(refused({{folder / "none"}}), HasSubstr("none.idx"));
  EXPECT_THAT(refused({{folder / "b", 0}}), HasSubstr("sum to 0"));
  const std::vector<Source> sources = {{folder / "b"}};
  const Dataset data(sources, 10, 1, 10);
  std::vector<int32_t> tokens(11);
  EXPECT_THAT(message_of(Fault::input, [&] { data.sample(0, tokens); }),
              AllOf(HasSubstr("b.bin"), HasSubstr("token 10"), HasSubstr("id 10"), HasSubstr("0 to 9")));
}

TEST(Dataset, RefusesAnEmptyDataset) {
  const TempFolder folder;
  write_source(folder, "a", 0, 0);
  const std::vector<Source> sources = {{folder / "a"}};
  EXPECT_THAT(message_of(Fault::input, [&] { Dataset data(sources, 10, 1, 1000); }), HasSubstr("0 tokens"));
}

TEST(Split, CutsDocumentsAsMegatronDoes) {
  const std::vector<double> megatron = {969, 30, 1};
  EXPECT_EQ(split_documents(megatron, 0, 1000), std::pair(0L, 969L));
  EXPECT_EQ(split_documents(megatron, 1, 1000), std::pair(969L, 999L));
  EXPECT_EQ(split_documents(megatron, 2, 1000), std::pair(999L, 1000L));
  // 96.9, 3.0 and 0.1 of 100 round to 97 + 3 + 0.
  EXPECT_EQ(split_documents(megatron, 2, 100), std::pair(100L, 100L));
  // 2.5 + 2.5 of 5 round to 2 + 2: the borders move by one.
  EXPECT_EQ(split_documents(std::vector<double>{1, 1}, 0, 5), std::pair(0L, 3L));
  EXPECT_EQ(split_documents(std::vector<double>{1, 1}, 1, 5), std::pair(3L, 5L));
  // 3.5 + 3.5 of 7 round to 4 + 4.
  EXPECT_EQ(split_documents(std::vector<double>{1, 1}, 0, 7), std::pair(0L, 3L));
  for (const std::vector<double>& shares : std::vector<std::vector<double>>{
           {1, 1}, {969, 30, 1}, {0.5, 0.25, 0.25}, {1, 0}, {1e-9, 1, 1e-9}, {1, 1, 1}, {3, 0, 5}})
    for (int64_t documents = 0; documents < 60; ++documents) {
      int64_t at = 0;
      for (size_t share = 0; share < shares.size(); ++share) {
        const auto [first, end] = split_documents(shares, share, documents);
        ASSERT_EQ(first, at);
        ASSERT_GE(end, first);
        at = end;
      }
      ASSERT_EQ(at, documents);
    }
  // 64 bits: doubles are exact far past any index.
  EXPECT_EQ(split_documents(std::vector<double>{1, 1}, 1, int64_t{1} << 45).first, int64_t{1} << 44);
}

TEST(Dataset, SharesTakeTheirDocumentsAndNoOthers) {
  const TempFolder folder;
  write_source(folder, "a", 0, 7000);  // 1000 documents of 7
  write_source(folder, "b", 100000, 700);
  const std::vector<Source> sources = {{folder / "a", 0.5}, {folder / "b", 0.5}};
  const Dataset training(sources, 10, 1, 200000, Order::shuffled, {.shares = {90, 9, 1}});
  const Dataset validation = training.share(1, Order::sequential);
  EXPECT_EQ(training.tokens(), 6300 + 630);
  EXPECT_EQ(validation.tokens(), 630 + 63);
  EXPECT_EQ(validation.first_token(0), 6300);
  EXPECT_EQ(sample(validation, 0).front(), 6300);
  EXPECT_EQ(sample(validation, 1).front(), 100630);
  std::set<int32_t> seen;
  for (int64_t i = 0; i < 2000; ++i) {
    for (const int32_t id : sample(training, i)) {
      EXPECT_TRUE(id < 6300 || (id >= 100000 && id < 100630)) << id;
      seen.insert(id);
    }
    for (const int32_t id : sample(validation, i))
      EXPECT_TRUE((id >= 6300 && id < 6930) || (id >= 100630 && id < 100693));
  }
  EXPECT_EQ(seen.size(), 6291u + 621u);  // each share's last nine tokens fill no sample
  EXPECT_THAT(
      message_of(Fault::input, [&] { training.share(2, Order::sequential); }),
      AllOf(HasSubstr("/b:"), HasSubstr("7 tokens"), HasSubstr("testing"), HasSubstr("documents 99 to 100 of 100")));
}

// Documents of lengths 0 to 40, some of several sequences, and empty ones anywhere.
struct MadeUpDocuments {
  std::vector<int64_t> begins;  // of every document, and the end
  std::string idx, bin;
};

MadeUpDocuments made_up_documents(uint64_t seed, bool behind_the_last_border) {
  MadeUpDocuments made;
  std::vector<int32_t> lengths;
  std::vector<int64_t> borders = {0};
  made.begins = {0};
  int64_t tokens = 0;
  for (uint64_t d = 0; d < 400; ++d) {
    const Random4 bits = philox(seed, d);
    for (uint32_t i = 0; i < bits[0] % 4; ++i) {  // no sequence at all is an empty document, too
      lengths.push_back(static_cast<int32_t>(philox(seed + 1, d * 8 + i)[0] % 40));
      if (bits[1] % 5 == 0) lengths.back() = 0;
      tokens += lengths.back();
    }
    borders.push_back(static_cast<int64_t>(lengths.size()));
    made.begins.push_back(tokens);
  }
  if (behind_the_last_border) {
    lengths.push_back(25);
    tokens += 25;
    made.begins.push_back(tokens);
  }
  const auto put = [&](auto value) { made.idx.append(reinterpret_cast<const char*>(&value), sizeof value); };
  made.idx = std::string("MMIDIDX\0\0", 9);
  put(uint64_t{1});
  put(uint8_t{8});
  put(static_cast<uint64_t>(lengths.size()));
  put(static_cast<uint64_t>(borders.size()));
  for (const int32_t length : lengths) put(length);
  int64_t at = 0;
  for (const int32_t length : lengths) {
    put(at);
    at += 2 * length;
  }
  for (const int64_t border : borders) put(border);
  made.bin.assign(static_cast<size_t>(2 * tokens), '\1');
  return made;
}

TEST(Dataset, SaysWhereEachTokensDocumentBegins) {
  const TempFolder folder;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const MadeUpDocuments made = made_up_documents(seed, seed % 2 == 1);
    folder.write("x.idx", made.idx);
    folder.write("x.bin", made.bin);
    const std::vector<Source> sources = {{folder / "x"}};
    for (const int64_t sequence : {1, 7, 64, 1000}) {
      const Dataset data(sources, sequence, 3, 300);
      std::vector<int32_t> tokens(static_cast<size_t>(sequence + 1)), starts(static_cast<size_t>(sequence));
      for (int64_t i = 0; i < std::min<int64_t>(data.samples(), 200); ++i) {
        data.sample(i, tokens, starts);
        const int64_t first = data.locate(i).sample * sequence;
        for (int64_t t = 0; t < sequence; ++t) {
          // The last document that begins at or before this token, found by looking at all.
          const auto behind = std::upper_bound(made.begins.begin(), made.begins.end(), first + t);
          const int64_t begin = *std::prev(behind);
          ASSERT_EQ(starts[static_cast<size_t>(t)], std::max<int64_t>(begin - first, 0))
              << seed << " " << i << " " << t;
        }
      }
    }
    int64_t documents = 0, empty = 0;
    const MegatronFile file(folder / "x");
    file.index().for_document_lengths([&](std::span<const int64_t> lengths) {
      for (const int64_t length : lengths) {
        ASSERT_EQ(length,
                  made.begins[static_cast<size_t>(documents) + 1] - made.begins[static_cast<size_t>(documents)]);
        ++documents;
        empty += length == 0;
      }
    });
    EXPECT_EQ(documents, file.index().documents());
    EXPECT_GT(empty, 20);
  }
}

TEST(Dataset, AFileThatIsCutUnderwayIsNamed) {
  const TempFolder folder;
  write_source(folder, "a", 0, 1001);
  const std::vector<Source> sources = {{folder / "a"}};
  const Dataset data(sources, 10, 1, 2000, Order::sequential);
  std::vector<int32_t> tokens(11), starts(10);
  data.will_need(0, 50);
  data.sample(99, tokens, starts);
  // Removed files go on being read.
  std::filesystem::copy_file(folder / "a.bin", folder / "b.bin");
  std::filesystem::remove(folder / "a.bin");
  data.sample(99, tokens, starts);
  EXPECT_EQ(tokens.back(), 1000);
  std::filesystem::rename(folder / "b.bin", folder / "a.bin");
  const Dataset again(sources, 10, 1, 2000, Order::sequential);
  std::filesystem::resize_file(folder / "a.bin", 2000);
  again.sample(0, tokens, starts);
  again.will_need(90, 10);
  EXPECT_THAT(message_of(Fault::input, [&] { again.sample(99, tokens); }),
              AllOf(HasSubstr("a.bin"), HasSubstr("has 2000 bytes"), HasSubstr("4004")));
  std::filesystem::resize_file(folder / "a.idx", 100);
  EXPECT_THAT(message_of(Fault::input, [&] { again.sample(0, tokens, starts); }),
              AllOf(HasSubstr("a.idx"), HasSubstr("has 100 bytes")));
}

// Indices of terabytes: what is read of them is in 64 bits. The .bin is a hole in the file system.
TEST(Dataset, ReadsPastFourBillionTokens) {
  const TempFolder folder;
  std::string idx("MMIDIDX\0\0", 9);
  const auto put = [&](auto value) { idx.append(reinterpret_cast<const char*>(&value), sizeof value); };
  constexpr int64_t sequences = 5, length = 2'000'000'000;
  put(uint64_t{1});
  put(uint8_t{4});
  put(static_cast<uint64_t>(sequences));
  put(static_cast<uint64_t>(sequences + 1));
  for (int64_t i = 0; i < sequences; ++i) put(static_cast<int32_t>(length));
  for (int64_t i = 0; i < sequences; ++i) put(i * length * 4);
  for (int64_t i = 0; i <= sequences; ++i) put(i);
  folder.write("x.idx", idx);
  folder.write("x.bin", "");
  std::error_code error;
  std::filesystem::resize_file(folder / "x.bin", static_cast<uintmax_t>(sequences * length * 4), error);
  if (error) GTEST_SKIP() << "this file system has no files of 40 GB with holes";
  const std::vector<Source> sources = {{folder / "x"}};
  const Dataset data(sources, 1000, 1, 10, Order::sequential);
  EXPECT_EQ(data.tokens(), sequences * length);
  std::vector<int32_t> tokens(1001), starts(1000);
  data.sample(data.samples() - 1, tokens, starts);
  EXPECT_EQ(tokens[1000], 0);
  EXPECT_EQ(starts[999], 0);
  data.sample(length / 1000 * 4 - 1, tokens, starts);  // ends where the fifth document begins
  EXPECT_EQ(starts[999], 0);
  data.sample(length / 1000 * 4, tokens, starts);
  EXPECT_EQ(starts[0], 0);
}

}  // namespace
}  // namespace strata::data
