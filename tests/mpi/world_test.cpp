// Messages, hops and training steps over MPI on four ranks; tests/mpi/CMakeLists.txt runs them under each MPI library found.

#include <gtest/gtest.h>

#include <numeric>

#include "comm/hop_trial.h"
#include "comm/local.h"
#include "core/error.h"
#include "core/random.h"
#include "mpi_world.h"
#include "step/small_job.h"
#include "train/runner.h"

namespace strata {
namespace {

comm::Transport& transport() { return mpi::world->transport(); }

TEST(World, KnowsWhoIsThere) {
  ASSERT_EQ(transport().ranks(), 4);
  // One host: all share its memory.
  EXPECT_EQ(mpi::world->nodes(), (std::vector<int64_t>{0, 0, 0, 0}));
  comm::Control control(transport(), 30);
  EXPECT_EQ(control.gather(transport().rank(), "test"), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(World, MessagesOfOneTagArriveInOrderAndTagsAreApart) {
  const int64_t rank = transport().rank(), to = (rank + 1) % 4, from = (rank + 3) % 4;
  std::vector<int32_t> sent(64), received(64, -1);
  std::iota(sent.begin(), sent.end(), static_cast<int32_t>(rank) * 100);
  const auto at = [](int32_t& value) { return device::Address(reinterpret_cast<uintptr_t>(&value)); };
  std::vector<comm::Transport::Ticket> tickets;
  // Odd and even values on two tags; receives of the second tag come first.
  for (size_t i = 1; i < 64; i += 2) tickets.push_back(transport().receive(from, 7, at(received[i]), 4));
  for (size_t i = 0; i < 64; i += 2) tickets.push_back(transport().receive(from, 3, at(received[i]), 4));
  for (size_t i = 0; i < 64; ++i) tickets.push_back(transport().send(to, i % 2 == 0 ? 3 : 7, at(sent[i]), 4));
  comm::Idle idle;
  while (!tickets.empty()) {
    transport().poll();
    std::erase_if(tickets, [](comm::Transport::Ticket t) { return transport().done(t); });
    idle.pause();
  }
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(received[i], static_cast<int32_t>(from) * 100 + static_cast<int32_t>(i));
}

TEST(World, HopsMoveAndSumLikePlainLoops) {
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{4}, std::vector<int64_t>{2, 2}})
    for (const int64_t grains : {1, 9, 150})
      for (const auto collective : {comm::Collective::all_gather, comm::Collective::reduce_scatter})
        for (const auto algorithm : {comm::Algorithm::direct, comm::Algorithm::ring})
          for (const device::Wire& wire :
               {device::Wire{}, device::Wire{.dtype = DType::bf16}, device::Wire{device::WireKind::int8, {}, 512}}) {
            if (algorithm == comm::Algorithm::ring && wire.kind != device::WireKind::raw) continue;
            comm::check_hop(transport(), {collective, algorithm, widths, grains * ops::grain, DType::f32, wire});
          }
}

std::vector<double> train(comm::Transport& with, const char* preset) {
  job::Job job = step::small_job(model::Family::llama);
  job.model.layers = 2;
  job.mesh.levels = {{"package", 2}, {"node", 2}, {"system", 1}};
  job.batch = {.global = 8, .micro = 1, .sequence = 24};
  job.optimizer.lr = 1e-2;
  job.placement.preset = preset;
  const auto device = device::make_cpu(1);
  train::Runner runner(job, *device, {.train = true}, {.transport = &with, .timeout = 60});
  runner.initialise(7);
  std::vector<double> losses;
  for (int s = 0; s < 4; ++s) {
    for (int m = 0; m < 2; ++m) {
      const int64_t sequence = s * 8 + m * 4 + runner.rank();
      std::vector<int32_t> tokens(25);
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>(philox(static_cast<uint64_t>(sequence), i)[0] % 211);
      runner.fill(step::Goal::train, m, tokens, sequence);
    }
    losses.push_back(runner.train_step(train::step_inputs(job, s, s, 8 * 24, 1e-2)).loss_sum);
  }
  step::Traffic counted;
  counted.add(step::traffic(runner.program(step::Goal::train)), 4);
  EXPECT_EQ(runner.sent(), counted);
  return losses;
}

TEST(World, TrainsWithTheSameBitsAsThreadsDo) {
  for (const char* preset : {"ddp", "zero1", "zero3", "zeropp", "zero-topo"}) {
    const std::vector<double> over_mpi = train(transport(), preset);
    if (transport().rank() != 0) continue;
    std::vector<double> on_threads;
    comm::on_local_ranks(4, [&](comm::Transport& thread) {
      const std::vector<double> losses = train(thread, preset);
      if (thread.rank() == 0) on_threads = losses;
    });
    EXPECT_EQ(over_mpi, on_threads) << preset;
  }
}

// Two gibibytes and more in one message list: 8 GiB over all ranks.
TEST(SlowWorld, VectorsPast2To31BytesArrive) {
  const comm::Hop hop{
      comm::Collective::all_gather, comm::Algorithm::direct, {4}, (int64_t{9} << 26) + 4 * ops::grain, DType::f32, {}};
  const int64_t member = transport().rank();
  const auto own = layout::part({0, hop.elements}, 4, member);
  const auto device = device::make_cpu(1);
  const device::Memory memory = device->allocate(hop.elements * 4);
  std::vector<int64_t> ranks = {0, 1, 2, 3};
  comm::HopRun walk(hop, ranks, member);
  for (int64_t i = own.begin; i < own.begin + own.elements; i += ops::grain) {
    const float value = static_cast<float>(i / ops::grain);
    device->upload(memory.address() + i * 4, &value, 4);
  }
  comm::run(walk, transport(), *device, {memory.address() + own.begin * 4, memory.address(), {}, {}});
  for (int64_t i = 0; i < hop.elements; i += ops::grain) {
    float value = 0;
    device->download(&value, memory.address() + i * 4, 4);
    ASSERT_EQ(value, static_cast<float>(i / ops::grain));
  }
}

}  // namespace
}  // namespace strata
