// links SECONDS BYTES FLOW...: what the links of a cluster carry, by streams and echoes that run at the same time.
//
//   A-B   rank A streams messages of BYTES to rank B
//   A=B   both ways at once
//   A~B   rank A sends 8 bytes to rank B and waits until they are back, again and again
// Rank 0 prints a line for each: payload in megabits a second, or milliseconds there and back. links.sh builds it.
// Exit code: 0 done, 2 bad input.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int under_way = 2;      // messages of a stream at a time, so that a link need not wait for a rank
constexpr int more = 0, end = 1;  // tags

struct Flow {
  int from, to;
  bool echo;
  MPI_Comm comm = MPI_COMM_NULL;  // of its own: flows between the same ranks are not confused
};

struct Seen {
  double first = 0, last = 0, bytes = 0, asked = 0;
  int begun = 0;
  std::vector<double> echoes;
};

std::vector<Flow> parse(int count, char** words, int ranks) {
  std::vector<Flow> flows;
  for (int i = 0; i < count; ++i) {
    int from = -1, to = -1, used = 0;
    char kind = 0;
    if (std::sscanf(words[i], "%d%c%d%n", &from, &kind, &to, &used) != 3 || words[i][used] ||
        !std::strchr("-=~", kind) || std::min(from, to) < 0 || std::max(from, to) >= ranks || from == to)
      return {};
    flows.push_back({from, to, kind == '~'});
    if (kind == '=') flows.push_back({to, from, false});
  }
  return flows;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double seconds = argc > 3 ? std::atof(argv[1]) : 0;
  const int bytes = argc > 3 ? std::atoi(argv[2]) : 0;
  auto flows = argc > 3 ? parse(argc - 3, argv + 3, ranks) : std::vector<Flow>();
  if (seconds <= 0 || bytes <= 0 || flows.empty()) {
    if (rank == 0) std::fprintf(stderr, "usage: links SECONDS BYTES A-B|A=B|A~B ..., ranks below %d\n", ranks);
    MPI_Finalize();
    return 2;
  }
  for (auto& flow : flows) MPI_Comm_dup(MPI_COMM_WORLD, &flow.comm);

  // A slot is a message to come or to go, and its request.
  struct Slot {
    size_t flow;
    std::vector<char> buffer;
    bool ending = false;
  };
  std::vector<Slot> slots;
  for (size_t f = 0; f < flows.size(); ++f) {
    if (rank != flows[f].from && rank != flows[f].to) continue;
    for (int i = 0; i < (flows[f].echo ? 1 : under_way); ++i)
      slots.push_back({f, std::vector<char>(flows[f].echo ? 8 : bytes)});
  }
  std::vector<MPI_Request> requests(slots.size(), MPI_REQUEST_NULL);
  const auto post = [&](size_t at) {
    auto& [f, buffer, ending] = slots[at];
    const auto& flow = flows[f];
    const int size = static_cast<int>(buffer.size());
    if (rank == flow.from && !flow.echo)
      MPI_Isend(buffer.data(), ending ? 0 : size, MPI_CHAR, flow.to, ending ? end : more, flow.comm, &requests[at]);
    else
      MPI_Irecv(buffer.data(), size, MPI_CHAR, rank == flow.from ? flow.to : flow.from, MPI_ANY_TAG, flow.comm,
                &requests[at]);
  };
  std::vector<Seen> seen(flows.size());
  const auto ask = [&](size_t f, int tag) {
    const char question[8] = {};
    seen[f].asked = MPI_Wtime();
    MPI_Send(question, 8, MPI_CHAR, flows[f].to, tag, flows[f].comm);
  };

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (size_t at = 0; at < slots.size(); ++at) post(at);
  for (size_t f = 0; f < flows.size(); ++f)
    if (flows[f].echo && rank == flows[f].from) ask(f, more);
  while (true) {
    int at = 0;
    MPI_Status status;
    MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &at, &status);
    if (at == MPI_UNDEFINED) break;
    const double now = MPI_Wtime();
    const bool over = now - start > seconds, counts = !over && now - start > seconds / 5;
    auto& slot = slots[at];
    const auto& flow = flows[slot.flow];
    auto& result = seen[slot.flow];
    if (flow.echo) {
      const int tag = status.MPI_TAG;
      if (tag == more) post(at);
      if (rank == flow.to) {
        MPI_Send(slot.buffer.data(), 8, MPI_CHAR, flow.from, tag, flow.comm);
      } else {
        if (counts) result.echoes.push_back(now - result.asked);
        if (tag == more) ask(slot.flow, over ? end : more);
      }
    } else if (rank == flow.from) {
      if (slot.ending) continue;
      slot.ending = over;
      post(at);
    } else if (status.MPI_TAG == more) {
      if (counts && result.begun >= under_way) result.bytes += bytes;  // those under way together may come together
      if (counts && ++result.begun == under_way) result.first = now;
      if (counts) result.last = now;
      post(at);
    }
  }

  // Each line's numbers come from the rank that saw them.
  std::vector<double> mine(3 * flows.size()), all(3 * flows.size());
  for (size_t f = 0; f < flows.size(); ++f) {
    auto& result = seen[f];
    if (!flows[f].echo && rank == flows[f].to && result.last > result.first)
      mine[3 * f] = 8e-6 * result.bytes / (result.last - result.first);
    if (flows[f].echo && rank == flows[f].from && !result.echoes.empty()) {
      std::sort(result.echoes.begin(), result.echoes.end());
      for (int i = 0; i < 3; ++i)
        mine[3 * f + i] = 1e3 * result.echoes[std::min(i * 495, 990) * (result.echoes.size() - 1) / 990];
    }
  }
  MPI_Reduce(mine.data(), all.data(), static_cast<int>(all.size()), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  for (size_t f = 0; rank == 0 && f < flows.size(); ++f) {
    const double* value = &all[3 * f];
    if (flows[f].echo)
      std::printf("%3d ~ %-3d  echo    median %8.3f ms   longest %8.3f ms\n", flows[f].from, flows[f].to, value[1],
                  value[2]);
    else
      std::printf("%3d > %-3d  stream  %8.1f Mb/s\n", flows[f].from, flows[f].to, value[0]);
  }
  MPI_Finalize();
  return 0;
}
