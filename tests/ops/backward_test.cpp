#include "ops/backward.h"

#include <gtest/gtest.h>

#include "ops/cost.h"

namespace strata::ops {
namespace {

/// y = x + linear(norm(x)): a residual branch in small.
struct Residual {
  Graph graph;
  int x, gamma, w, n, rstd, l, y, dy;
  Residual() {
    x = graph.add({.name = "x", .shape = {8, 16}, .role = Role::input});
    gamma = graph.add({.name = "gamma", .shape = {16}, .role = Role::parameter});
    w = graph.add({.name = "w", .shape = {16, 16}, .role = Role::parameter, .offset = 64});
    n = graph.add({.name = "n", .shape = {8, 16}});
    rstd = graph.add({.name = "rstd", .shape = {8}});
    l = graph.add({.name = "l", .shape = {8, 16}});
    y = graph.add({.name = "y", .shape = {8, 16}, .role = Role::output});
    dy = graph.add({.name = "dy", .shape = {8, 16}, .role = Role::output_gradient});
    graph.ops.push_back({.kind = Kind::rms_norm, .in = {x, gamma}, .out = {n, rstd}, .attributes = NormAttributes{}});
    graph.ops.push_back({.kind = Kind::linear, .in = {n, w}, .out = {l}});
    graph.ops.push_back({.kind = Kind::add, .in = {x, l}, .out = {y}});
  }
};

TEST(Reverse, AddsTheBranchToTheGradientThatWentAround) {
  Residual r;
  const std::vector<Op> ops = reverse(r.graph, r.y, r.dy, r.x, true);
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].kind, Kind::linear_backward_input);
  EXPECT_EQ(ops[0].in, (std::vector<int>{r.dy, r.w}));
  EXPECT_EQ(ops[1].kind, Kind::linear_backward_weight);
  EXPECT_EQ(ops[1].half, Half::weight);
  EXPECT_EQ(ops[2].kind, Kind::rms_norm_backward);
  EXPECT_EQ(ops[2].in.back(), r.dy);  // the addend
  const Tensor& dx = r.graph.tensors[static_cast<size_t>(ops[2].out[0])];
  EXPECT_EQ(dx.role, Role::input_gradient);
  const Tensor& dw = r.graph.tensors[static_cast<size_t>(ops[1].out[0])];
  EXPECT_EQ(dw.role, Role::gradient);
  EXPECT_EQ(dw.offset, 64);
}

TEST(Reverse, LeavesOutWhatNobodyWants) {
  Residual r;
  r.graph.tensors[static_cast<size_t>(r.gamma)].role = Role::constant;
  r.graph.tensors[static_cast<size_t>(r.w)].role = Role::constant;
  // Neither parameters nor the input: nothing to do.
  EXPECT_TRUE(reverse(r.graph, r.y, r.dy, r.x, false).empty());
}

TEST(Reverse, ASecondUseOfAParameterAddsToItsGradient) {
  Residual r;
  const int l2 = r.graph.add({.name = "l2", .shape = {8, 16}}), z = r.graph.add({.name = "z", .shape = {8, 16}});
  r.graph.ops.pop_back();
  r.graph.ops.push_back({.kind = Kind::linear, .in = {r.l, r.w}, .out = {l2}});
  r.graph.ops.push_back({.kind = Kind::add, .in = {r.x, l2}, .out = {z}});
  std::vector<bool> accumulate;
  for (const Op& op : reverse(r.graph, z, r.dy, r.x, true))
    if (op.kind == Kind::linear_backward_weight) accumulate.push_back(op.accumulate);
  EXPECT_EQ(accumulate, (std::vector<bool>{false, true}));
}

TEST(Reverse, ATensorUsedTwiceGetsBothContributions) {
  Graph graph;
  const int x = graph.add({.name = "x", .shape = {4, 8}, .role = Role::input});
  const int a = graph.add({.name = "a", .shape = {4, 8}}), b = graph.add({.name = "b", .shape = {4, 8}});
  const int y = graph.add({.name = "y", .shape = {4, 8}, .role = Role::output});
  const int dy = graph.add({.name = "dy", .shape = {4, 8}, .role = Role::output_gradient});
  graph.ops.push_back({.kind = Kind::gelu, .in = {x}, .out = {a}, .attributes = GeluAttributes{}});
  graph.ops.push_back({.kind = Kind::gelu, .in = {x}, .out = {b}, .attributes = GeluAttributes{}});
  graph.ops.push_back({.kind = Kind::add, .in = {a, b}, .out = {y}});
  const std::vector<Op> ops = reverse(graph, y, dy, x, true);
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[2].kind, Kind::add);
  EXPECT_EQ(graph.tensors[static_cast<size_t>(ops[2].out[0])].role, Role::input_gradient);
}

TEST(Cost, CountsProductsAndCausalAttention) {
  std::vector<Tensor> t = {
      {.name = "x", .shape = {10, 6}}, {.name = "w", .shape = {4, 6}}, {.name = "y", .shape = {10, 4}}};
  EXPECT_EQ(cost({.kind = Kind::linear, .in = {0, 1}, .out = {2}}, t).flops, 2 * 10 * 6 * 4);
  std::vector<Tensor> a = {
      {.name = "qkv", .shape = {8, 12}}, {.name = "y", .shape = {8, 4}}, {.name = "lse", .shape = {1, 2, 8}}};
  const AttentionAttributes attributes{.heads = 2, .kv_heads = 2, .head_dim = 2, .sequence = 8, .scale = 1};
  // 8 x 9 / 2 = 36 pairs, two products, 2 flops x 4 dims each.
  EXPECT_EQ(cost({.kind = Kind::attention, .in = {0}, .out = {1, 2}, .attributes = attributes}, a).flops,
            36 * 2 * 2 * 4);
}

TEST(InPlace, NamesOnlyInputsThatExist) {
  for (int kind = 0; kind <= static_cast<int>(Kind::adamw); ++kind)
    for (int inputs = 1; inputs <= 6; ++inputs) {
      const Op op{.kind = static_cast<Kind>(kind), .in = std::vector<int>(static_cast<size_t>(inputs), 0), .out = {0}};
      if (op.kind == Kind::add && inputs < 2) continue;
      if (op.kind == Kind::gelu_backward && inputs < 2) continue;
      if (op.kind == Kind::swiglu_backward && inputs < 2) continue;
      for (int i : in_place_inputs(op)) EXPECT_LT(i, inputs) << name_of(op.kind);
    }
}

}  // namespace
}  // namespace strata::ops
