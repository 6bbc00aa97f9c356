#include "train/team.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <vector>

#include "core/error.h"

namespace strata::train {

namespace {

/// Of the program file that runs; 0 where the system does not show it.
uint64_t program_digest() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  XXH64_state_t* state = XXH64_createState();
  XXH64_reset(state, 0);
  std::vector<char> bytes(1 << 20);
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || file.gcount() > 0)
    XXH64_update(state, bytes.data(), static_cast<size_t>(file.gcount()));
  const uint64_t digest = XXH64_digest(state);
  XXH64_freeState(state);
  return digest;
}

}  // namespace

void check_same(comm::Control& control, const job::Job& job) {
  struct Identity {
    uint64_t job, program;
    bool operator==(const Identity&) const = default;
  };
  const std::vector<Identity> all =
      control.gather(Identity{job::digest(job), program_digest()}, "comparing jobs and programs at the start");
  std::vector<size_t> jobs, programs;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].job != all[0].job) jobs.push_back(rank);
    if (all[rank].program != all[0].program) programs.push_back(rank);
  }
  const auto ranks = [](const std::vector<size_t>& list) {
    return fmt::format("rank{} {}", list.size() == 1 ? "" : "s", fmt::join(list, ", "));
  };
  if (!programs.empty())
    throw everywhere(input_error("{} of {} run another strata program than rank 0; install one build on all nodes",
                                 ranks(programs), all.size()));
  if (!jobs.empty())
    throw everywhere(input_error(
        "{} of {} were given another job than rank 0 (compare strata config show); start all ranks with the "
        "same file and options",
        ranks(jobs), all.size()));
}

void together(comm::Control* control, const char* what, const std::function<void()>& work) {
  if (!control) return work();
  struct Word {
    int32_t fault = 0;
    std::array<char, 508> text{};
  };
  Word mine;
  std::optional<Error> thrown;
  try {
    work();
  } catch (const Error& error) {
    thrown = error;
  } catch (const std::exception& error) {
    thrown = Error(Fault::run, error.what());
  }
  if (thrown) {
    mine.fault = thrown->exit_code();
    std::strncpy(mine.text.data(), thrown->what(), mine.text.size() - 1);
  }
  const std::vector<Word> all = control->gather(mine, what);
  if (thrown) throw everywhere(*thrown);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].fault == 0) continue;
    const std::string text = fmt::format("rank {}: {}", rank, all[rank].text.data());
    throw everywhere(Error(static_cast<Fault>(all[rank].fault), text));
  }
}

int64_t sum(comm::Control* control, int64_t mine, const char* what) {
  if (!control) return mine;
  const std::vector<int64_t> all = control->gather(mine, what);
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

step::Traffic sum(comm::Control* control, const step::Traffic& mine) {
  if (!control) return mine;
  // Ranks may lack entries that others have: where a part is too short to be cut, say. So entries travel with their keys.
  struct Entry {
    int32_t level;
    step::Purpose purpose;
    std::array<char, 11> wire;
    comm::Sent sent;
  };
  int64_t most = 0;
  for (int64_t entries : control->gather(static_cast<int64_t>(mine.entries().size()), "adding up traffic"))
    most = std::max(most, entries);
  std::vector<Entry> entries;
  for (const auto& [key, sent] : mine.entries()) {
    Entry& entry = entries.emplace_back(Entry{key.level, key.purpose, {}, sent});
    std::copy_n(key.wire.begin(), std::min(key.wire.size(), entry.wire.size() - 1), entry.wire.begin());
  }
  entries.resize(static_cast<size_t>(most));
  const std::vector<std::byte> all = control->gather(std::as_bytes(std::span(entries)), "adding up traffic");
  std::vector<Entry> received(all.size() / sizeof(Entry));
  std::memcpy(received.data(), all.data(), all.size());
  step::Traffic result;
  for (const Entry& entry : received) {
    if (entry.wire[0] == 0) continue;
    comm::Sent& sum_of = result.at({entry.level, entry.purpose, entry.wire.data()});
    sum_of.bytes += entry.sent.bytes;
    sum_of.messages += entry.sent.messages;
  }
  return result;
}

}  // namespace strata::train
