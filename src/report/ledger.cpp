#include "report/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace strata::report {

namespace {

std::string share_text(int64_t part, int64_t whole) {
  return whole == 0 ? "" : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

std::vector<LedgerRow> ledger(const train::RunEnd& end, std::span<const std::string> level_names) {
  step::Traffic keys = end.sent;
  keys.add(end.planned);  // entries of either
  std::vector<LedgerRow> rows;
  for (const auto& [key, unused] : keys.entries()) {
    const auto of = [&key = key](const step::Traffic& traffic) {
      const auto found = traffic.entries().find(key);
      return found == traffic.entries().end() ? comm::Sent{} : found->second;
    };
    const auto level = static_cast<size_t>(key.level);
    LedgerRow row{level < level_names.size() ? level_names[level] : fmt::format("level {}", key.level),
                  std::string(name_of(key.purpose)), key.wire, of(end.sent), of(end.planned)};
    if (row.sent != comm::Sent{} || row.planned != comm::Sent{}) rows.push_back(std::move(row));
  }
  return rows;
}

LedgerRow total(std::span<const LedgerRow> rows) {
  LedgerRow sum;
  for (const LedgerRow& row : rows) {
    sum.sent.bytes += row.sent.bytes, sum.sent.messages += row.sent.messages;
    sum.planned.bytes += row.planned.bytes, sum.planned.messages += row.planned.messages;
  }
  return sum;
}

std::vector<std::string> ledger_lines(std::span<const LedgerRow> rows, int64_t steps) {
  if (rows.empty()) return {};
  const int64_t all = total(rows).sent.bytes;
  std::vector<std::string> lines = {fmt::format("{:<10} {:<16} {:<5} {:>10} {:>20} {:>12} {:>8}", "level", "purpose",
                                                "wire", "a step", "bytes in all", "messages", "share")};
  const auto line = [&](std::string_view level, std::string_view purpose, std::string_view wire,
                        const comm::Sent& sent) {
    lines.push_back(fmt::format("{:<10} {:<16} {:<5} {:>10} {:>20} {:>12} {:>8}", level, purpose, wire,
                                human_bytes(sent.bytes / std::max<int64_t>(steps, 1)), sent.bytes, sent.messages,
                                share_text(sent.bytes, all)));
  };
  for (size_t first = 0; first < rows.size();) {
    size_t last = first;
    for (; last < rows.size() && rows[last].level == rows[first].level; ++last)
      line(rows[last].level, rows[last].purpose, rows[last].wire, rows[last].sent);
    if (last > first + 1) line(rows[first].level, "all", "", total(rows.subspan(first, last - first)).sent);
    first = last;
  }
  line("all", "", "", total(rows).sent);
  const std::vector<std::string> differences = ledger_differences(rows);
  if (differences.empty()) {
    lines.push_back("sent = counted: every byte and message is one that the step programs list");
  } else {
    lines.push_back(
        fmt::format("SENT IS NOT WHAT THE STEP PROGRAMS COUNT, in {} of {} rows:", differences.size(), rows.size()));
    for (const std::string& difference : differences) lines.push_back("  " + difference);
  }
  return lines;
}

std::vector<std::string> ledger_differences(std::span<const LedgerRow> rows) {
  std::vector<std::string> lines;
  for (const LedgerRow& row : rows)
    if (!row.as_planned())
      lines.push_back(fmt::format("{} {} {}: sent {} bytes in {} messages, counted {} in {} ({:+} bytes)", row.level,
                                  row.purpose, row.wire, row.sent.bytes, row.sent.messages, row.planned.bytes,
                                  row.planned.messages, row.sent.bytes - row.planned.bytes));
  return lines;
}

}  // namespace strata::report
