#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

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

}  // namespace
}  // namespace strata::data
