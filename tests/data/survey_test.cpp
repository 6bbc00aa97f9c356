#include "data/survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/temp_folder.h"

namespace strata::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Survey, CountsTokensAndLengths) {
  const TempFolder folder;
  MegatronWriter writer(folder / "x", DType::i32);
  for (int d = 1; d <= 1000; ++d) {
    writer.add(std::vector<int32_t>(static_cast<size_t>(d), d % 2 == 0 ? 3 : 9));
    writer.add(std::vector<int32_t>{9});
    writer.end_document();
  }
  writer.commit();
  const Survey found = survey(MegatronFile(folder / "x"), 10);
  EXPECT_EQ(found.largest_id, 9);
  EXPECT_EQ(found.distinct_ids, 2);
  const double threes = 250500, nines = 250000 + 1000, total = threes + nines;
  EXPECT_NEAR(found.entropy.value(),
              -threes / total * std::log(threes / total) - nines / total * std::log(nines / total), 1e-12);
  EXPECT_EQ(found.documents.count, 1000);
  EXPECT_EQ(found.sequences.count, 2000);
  EXPECT_EQ(found.documents.least, 2);
  EXPECT_EQ(found.documents.most, 1001);
  EXPECT_EQ(found.documents.empty, 0);
  EXPECT_DOUBLE_EQ(found.documents.mean, 501.5);
  for (const auto& [value, wanted] : {std::pair(found.documents.p10, 101), std::pair(found.documents.p50, 501),
                                      std::pair(found.documents.p90, 901), std::pair(found.documents.p99, 991)}) {
    EXPECT_LE(value, wanted);
    EXPECT_GE(value, wanted - wanted / 64 - 1);
  }
  EXPECT_EQ(found.sequences.least, 1);
  EXPECT_EQ(found.sequences.p50, 1);
  EXPECT_THAT(message_of(Fault::input, [&] { survey(MegatronFile(folder / "x"), 9); }),
              AllOf(HasSubstr("x.bin"), HasSubstr("token 0"), HasSubstr("id 9"), HasSubstr("0 to 8")));
}

TEST(Survey, OfNothingAndOfHugeIds) {
  const TempFolder folder;
  MegatronWriter(folder / "x", DType::u16).commit();
  const Survey nothing = survey(MegatronFile(folder / "x"), 10);
  EXPECT_EQ(nothing.largest_id, -1);
  EXPECT_EQ(nothing.documents.count, 0);
  MegatronWriter writer(folder / "y", DType::i32);
  writer.add(std::vector<int32_t>{1, 2'000'000'000});
  writer.commit();
  const Survey huge = survey(MegatronFile(folder / "y"), int64_t{1} << 31);
  EXPECT_EQ(huge.largest_id, 2'000'000'000);
  EXPECT_FALSE(huge.entropy.has_value());
}

}  // namespace
}  // namespace strata::data
