#include "mpi/world.h"

#include <mpi.h>

#include <cstdlib>
#include <mutex>

#include "core/allocations.h"
#include "core/error.h"

namespace strata::mpi {

namespace {

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

void check(int error, const char* call) {
  if (error != MPI_SUCCESS) throw run_error("{}: {}", call, text_of(error));
}

}  // namespace

std::string library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);  // one of the calls allowed before MPI_Init
  std::string name(text, static_cast<size_t>(length));
  // "Open MPI v4.1.4, package: ..."; "MPICH Version:\t4.0.2\nMPICH ...".
  if (name.starts_with("MPICH")) {
    const auto digit = name.find_first_of("0123456789");
    return "MPICH " + name.substr(digit, name.find_first_not_of("0123456789.", digit) - digit);
  }
  return name.substr(0, name.find_first_of(",\n"));
}

bool launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "MPI_LOCALNRANKS"})
    if (std::getenv(name)) return true;
  // srun starts processes whether or not they use MPI; one alone needs none.
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks && std::atoi(tasks) > 1;
}

int ranks_on_node() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"})
    if (const char* value = std::getenv(name); value && std::atoi(value) > 0) return std::atoi(value);
  return 1;
}

class World::Messages final : public comm::Transport {
 public:
  explicit Messages(bool locked) : locked_(locked) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    // A peer that goes away is told of as an error with a name, not by the library's own end.
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    int rank = 0, ranks = 0;
    MPI_Comm_rank(world_, &rank);
    MPI_Comm_size(world_, &ranks);
    rank_ = rank;
    ranks_ = ranks;
    for (size_t slot = at_once; slot-- > 0;) free_.push_back(static_cast<Ticket>(slot));
    requests_.reserve(at_once);
    tickets_.reserve(at_once);
  }
  ~Messages() override { MPI_Comm_free(&world_); }

  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return ranks_; }

  Ticket send(int64_t to, int32_t tag, device::Address from, int64_t bytes) override {
    return begin("MPI_Isend", [&](MPI_Request* request) {
      return MPI_Isend(reinterpret_cast<const void*>(from.value()), static_cast<int>(bytes), MPI_BYTE,
                       static_cast<int>(to), tag, world_, request);
    });
  }
  Ticket receive(int64_t from, int32_t tag, device::Address to, int64_t bytes) override {
    return begin("MPI_Irecv", [&](MPI_Request* request) {
      return MPI_Irecv(reinterpret_cast<void*>(to.value()), static_cast<int>(bytes), MPI_BYTE, static_cast<int>(from),
                       tag, world_, request);
    });
  }
  /// One look of the library's at all messages, however many: each looks at every connection.
  void poll() override {
    const auto lock = guard();
    if (requests_.empty()) return;
    int found = 0;
    {
      const allocations::LibraryCall library_call;
      const int error =
          MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &found, places_.data(), statuses_.data());
      if (error == MPI_ERR_IN_STATUS)
        for (int i = 0; i < found; ++i) check(statuses_[static_cast<size_t>(i)].MPI_ERROR, "MPI_Testsome");
      check(error, "MPI_Testsome");
    }
    for (int i = 0; i < found; ++i) {
      const auto place = static_cast<size_t>(places_[static_cast<size_t>(i)]);
      done_[static_cast<size_t>(tickets_[place])] = true;
    }
    // What is still under way moves together.
    size_t kept = 0;
    for (size_t place = 0; found > 0 && place < requests_.size(); ++place) {
      if (done_[static_cast<size_t>(tickets_[place])]) continue;
      requests_[kept] = requests_[place];
      tickets_[kept++] = tickets_[place];
    }
    if (found > 0) requests_.resize(kept), tickets_.resize(kept);
  }
  bool done(Ticket ticket) override {
    const auto lock = guard();
    if (!done_[static_cast<size_t>(ticket)]) return false;
    done_[static_cast<size_t>(ticket)] = false;
    free_.push_back(ticket);
    return true;
  }

 private:
  static constexpr size_t at_once = 1 << 15;

  std::unique_lock<std::mutex> guard() {
    return locked_ ? std::unique_lock(mutex_) : std::unique_lock(mutex_, std::defer_lock);
  }
  template <class Call>
  Ticket begin(const char* name, const Call& call) {
    const auto lock = guard();
    STRATA_CHECK(!free_.empty(), "more than {} messages under way", at_once);
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const allocations::LibraryCall library_call;
      check(call(&request), name);
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    requests_.push_back(request);
    tickets_.push_back(ticket);
    return ticket;
  }

  MPI_Comm world_ = MPI_COMM_NULL;
  int64_t rank_ = 0, ranks_ = 0;
  bool locked_;
  std::mutex mutex_;
  // Messages under way, and whose they are; the library wants its requests side by side.
  std::vector<MPI_Request> requests_;
  std::vector<Ticket> tickets_;
  std::vector<int> places_ = std::vector<int>(at_once);  ///< what a look finds
  std::vector<MPI_Status> statuses_ = std::vector<MPI_Status>(at_once);
  std::vector<bool> done_ = std::vector<bool>(at_once);  ///< by ticket: found done, and not asked for yet
  std::vector<Ticket> free_;
};

World::World(bool thread_a_level) {
  const int wanted = thread_a_level ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  int given = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, wanted, &given), "MPI_Init_thread");
  if (given < wanted)
    throw run_error("{} gives no {}: {}", library(), thread_a_level ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SERIALIZED",
                    thread_a_level ? "set run.communication_threads = \"one\"" : "use another MPI library");
  messages_ = std::make_unique<Messages>(thread_a_level);

  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  int64_t first = messages_->rank();
  check(MPI_Bcast(&first, 1, MPI_INT64_T, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
  nodes_.resize(static_cast<size_t>(messages_->ranks()));
  check(MPI_Allgather(&first, 1, MPI_INT64_T, nodes_.data(), 1, MPI_INT64_T, MPI_COMM_WORLD), "MPI_Allgather");
}

World::~World() {
  messages_.reset();
  MPI_Finalize();
}

comm::Transport& World::transport() { return *messages_; }
const std::vector<int64_t>& World::nodes() const { return nodes_; }

void World::library_collective(comm::Collective collective, const float* in, float* out, int64_t elements) {
  const auto count = static_cast<int>(elements), part = static_cast<int>(elements / transport().ranks());
  switch (collective) {
    case comm::Collective::all_gather:
      return check(MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD), "MPI_Allgather");
    case comm::Collective::reduce_scatter:
      return check(MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
                   "MPI_Reduce_scatter_block");
    case comm::Collective::all_reduce:
      return check(MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    case comm::Collective::send: break;
  }
  throw run_error("{} is no collective of {}", comm::name_of(collective), library());
}

void World::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace strata::mpi
