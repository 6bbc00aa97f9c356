#include "report/ledger.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace strata::report {
namespace {

using step::Purpose;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::vector<std::string> level_names = {"package", "node", "system"};

train::RunEnd example() {
  train::RunEnd end{.step = 4, .sent = {}, .planned = {}, .saved = {}};
  end.sent.at({0, Purpose::weights_forward, "int8"}) = {4'000'000, 40};
  end.sent.at({0, Purpose::gradients, "int4"}) = {2'000'000, 20};
  end.sent.at({2, Purpose::reduction, "bf16"}) = {10'000'000, 8};
  end.sent.at({1, Purpose::norm, "i64"}) = {0, 0};
  end.planned.add(end.sent);
  return end;
}

TEST(Ledger, RowsAreByLevelAndWithoutWhatNobodySent) {
  const std::vector<LedgerRow> rows = ledger(example(), level_names);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].level, "package");
  EXPECT_EQ(rows[0].purpose, "weights_forward");
  EXPECT_EQ(rows[0].wire, "int8");
  EXPECT_EQ(rows[0].sent, (comm::Sent{4'000'000, 40}));
  EXPECT_EQ(rows[0].planned, (comm::Sent{4'000'000, 40}));
  EXPECT_EQ(rows[2].level, "system");
  EXPECT_EQ(total(rows).sent, (comm::Sent{16'000'000, 68}));
  EXPECT_EQ(ledger(example(), {})[2].level, "level 2");
}

TEST(Ledger, TableAddsUpAndSaysThatAllWasCounted) {
  const std::vector<LedgerRow> rows = ledger(example(), level_names);
  const std::vector<std::string> lines = ledger_lines(rows, 4);
  std::vector<std::string> squeezed;
  for (std::string line : lines) {
    line.erase(std::unique(line.begin(), line.end(), [](char a, char b) { return a == ' ' && b == ' '; }), line.end());
    squeezed.push_back(line);
  }
  EXPECT_THAT(squeezed,
              ElementsAre("level purpose wire a step bytes in all messages share",
                          "package weights_forward int8 1.00 MB 4000000 40 25.0 %",
                          "package gradients int4 500 kB 2000000 20 12.5 %", "package all 1.50 MB 6000000 60 37.5 %",
                          "system reduction bf16 2.50 MB 10000000 8 62.5 %", "all 4.00 MB 16000000 68 100.0 %",
                          StartsWith("sent = counted")));
  EXPECT_THAT(ledger_differences(rows), IsEmpty());
}

TEST(Ledger, EveryDifferenceIsNamed) {
  train::RunEnd end = example();
  end.sent.at({0, Purpose::gradients, "int4"}).bytes += 64;
  end.sent.at({2, Purpose::update, "bf16"}) = {12, 1};         // sent and never counted
  end.planned.at({1, Purpose::gradients, "int4"}) = {500, 5};  // counted and never sent
  end.planned.at({2, Purpose::reduction, "bf16"}).messages += 1;
  const std::vector<LedgerRow> rows = ledger(end, level_names);
  EXPECT_THAT(
      ledger_differences(rows),
      ElementsAre("package gradients int4: sent 2000064 bytes in 20 messages, counted 2000000 in 20 (+64 bytes)",
                  "node gradients int4: sent 0 bytes in 0 messages, counted 500 in 5 (-500 bytes)",
                  "system reduction bf16: sent 10000000 bytes in 8 messages, counted 10000000 in 9 (+0 bytes)",
                  "system update bf16: sent 12 bytes in 1 messages, counted 0 in 0 (+12 bytes)"));
  const std::vector<std::string> lines = ledger_lines(rows, 4);
  EXPECT_THAT(lines[lines.size() - 5], StartsWith("SENT IS NOT WHAT THE STEP PROGRAMS COUNT, in 4 of 5 rows"));
  EXPECT_THAT(lines.back(), HasSubstr("system update bf16"));
}

TEST(Ledger, NothingSentIsNoTable) {
  const std::vector<LedgerRow> rows = ledger({}, level_names);
  EXPECT_THAT(rows, IsEmpty());
  EXPECT_THAT(ledger_lines(rows, 3), IsEmpty());
}

}  // namespace
}  // namespace strata::report
