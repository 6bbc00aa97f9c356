#include "core/error.h"
#include "device/trial.h"

namespace strata::device {
namespace {

class EmbeddingTest : public DeviceTest {};
STRATA_ON_EVERY_TARGET(EmbeddingTest);

struct Sizes {
  int64_t batch, sequence, width, vocab;
};
constexpr Sizes all_sizes[] = {{1, 1, 1, 1}, {2, 3, 17, 5}, {3, 5, 64, 7}, {2, 129, 130, 50}, {1, 7, 2049, 3}};

TEST_P(EmbeddingTest, Forward) {
  for (const Sizes s : all_sizes)
    for (const bool positioned : {false, true}) {
      const int64_t tokens = s.batch * s.sequence, positions = s.sequence + 1;
      const auto ids = random_ids(tokens, 1, static_cast<int32_t>(s.vocab));
      const auto table = random_floats(s.vocab * s.width, 2), places = random_floats(positions * s.width, 3);
      std::vector<float> expected;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < s.width; ++i) {
          const float place = places[static_cast<size_t>(t % s.sequence * s.width + i)];
          expected.push_back(table[static_cast<size_t>(ids[static_cast<size_t>(t)] * s.width + i)] +
                             (positioned ? place : 0.0f));
        }
      const auto results = run_on_any_threads([&](Device& device) {
        Trial trial(device);
        ops::Op op{.kind = ops::Kind::embedding};
        op.attributes = ops::EmbeddingAttributes{s.sequence};
        op.in = {trial.add({tokens}, ids), trial.add({s.vocab, s.width}, table)};
        if (positioned) op.in.push_back(trial.add({positions, s.width}, places));
        op.out = {trial.empty({tokens, s.width})};
        trial.run(op);
        return Results{trial.read(op.out[0])};
      });
      expect_same_bits(results[0], expected);
    }
}

TEST_P(EmbeddingTest, WhileGenerating) {
  const auto device = make();
  const int64_t rows = 4, width = 20, vocab = 6, limit = 9;
  const auto table = random_floats(vocab * width, 2), places = random_floats(limit * width, 3);
  // Rows past the real ones may hold anything.
  const std::vector<int32_t> ids = {5, 0, -7, 1000};
  for (const bool positioned : {false, true}) {
    Trial trial(*device);
    ops::Op op{.kind = ops::Kind::embedding};
    op.attributes = ops::EmbeddingAttributes{.cached = true};
    op.in = {trial.add({rows}, ids), trial.add({vocab, width}, table)};
    if (positioned) op.in.push_back(trial.add({limit, width}, places));
    op.in.push_back(trial.inputs({.position = 7, .new_tokens = 2}));
    op.out = {trial.empty({rows, width})};
    trial.run(op);
    const auto y = trial.read(op.out[0]);
    for (size_t t = 0; t < 4; ++t)
      for (size_t i = 0; i < 20; ++i) {
        float expected = 0;
        if (t < 2)
          expected = table[static_cast<size_t>(ids[t]) * 20 + i] + (positioned ? places[(7 + t) * 20 + i] : 0.0f);
        ASSERT_EQ(y[t * 20 + i], expected);
      }
    trial.write(op.in.back(), std::vector<ops::StepInputs>{{.position = 8, .new_tokens = 2}});
    if (positioned) {
      EXPECT_THROW(trial.run(op), Error);
    }
  }
}

TEST_P(EmbeddingTest, Backward) {
  for (const Sizes s : all_sizes)
    for (const bool positioned : {false, true})
      for (const bool accumulate : {false, true}) {
        const int64_t tokens = s.batch * s.sequence, positions = s.sequence + 2;
        const auto ids = random_ids(tokens, 4, static_cast<int32_t>(s.vocab));
        const auto dy = random_floats(tokens * s.width, 5);
        const auto table = random_floats(s.vocab * s.width, 6), places = random_floats(positions * s.width, 7);
        std::vector<double> dtable(table.size()), dpositions(places.size());
        if (accumulate) {
          dtable.assign(table.begin(), table.end());
          dpositions.assign(places.begin(), places.end());
        }
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < s.width; ++i) {
            const double v = dy[static_cast<size_t>(t * s.width + i)];
            dtable[static_cast<size_t>(ids[static_cast<size_t>(t)] * s.width + i)] += v;
            dpositions[static_cast<size_t>(t % s.sequence * s.width + i)] += v;
          }
        const auto results = run_on_any_threads([&](Device& device) {
          Trial trial(device);
          ops::Op op{.kind = ops::Kind::embedding_backward};
          op.attributes = ops::EmbeddingAttributes{s.sequence};
          op.accumulate = accumulate;
          op.in = {trial.add({tokens, s.width}, dy), trial.add({tokens}, ids)};
          const ops::Shape shape = {s.vocab, s.width}, place_shape = {positions, s.width};
          op.out = {accumulate ? trial.add(shape, table) : trial.empty(shape)};
          if (positioned) op.out.push_back(accumulate ? trial.add(place_shape, places) : trial.empty(place_shape));
          trial.run(op);
          std::vector<std::vector<float>> all;
          for (int i : op.out) all.push_back(trial.read(i));
          return all;
        });
        expect_close(results[0], dtable, 1e-6);
        if (positioned) expect_close(results[1], dpositions, 1e-6);
      }
}

TEST_P(EmbeddingTest, RefusesTokensPastTheTable) {
  const auto device = make();
  for (const int32_t bad : {5, -1, 1 << 30}) {
    Trial trial(*device);
    ops::Op op{.kind = ops::Kind::embedding};
    op.attributes = ops::EmbeddingAttributes{3};
    op.in = {trial.add<int32_t>({3}, {0, 4, bad}), trial.add({5, 8}, random_floats(40, 1))};
    op.out = {trial.empty({3, 8})};
    EXPECT_THROW(trial.run(op), Error) << bad;
    ops::Op back{.kind = ops::Kind::embedding_backward};
    back.attributes = ops::EmbeddingAttributes{3};
    back.in = {op.out[0], op.in[0]};
    back.out = {op.in[1]};
    EXPECT_THROW(trial.run(back), Error) << bad;
  }
}

}  // namespace
}  // namespace strata::device
