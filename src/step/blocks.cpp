#include "step/blocks.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "ops/backward.h"
#include "step/place.h"
#include "step/recompute.h"

namespace strata::step {

using ops::Op;
using ops::Role;
using ops::Tensor;

UnitLowering lower_unit(const Request& request, const model::Unit& unit, const model::Dimensions& dimensions,
                        Goal goal) {
  const auto use = goal == Goal::train      ? model::Use::train
                   : goal == Goal::evaluate ? model::Use::evaluate
                                            : model::Use::generate;
  ops::Graph graph = model::forward(request.job.model, unit, dimensions, use, request.inspect);
  UnitLowering lowering;
  lowering.forward = graph.ops;
  if (goal == Goal::train) {
    int input = -1, output = -1;
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].role == Role::input) input = static_cast<int>(t);
      if (graph.tensors[t].role == Role::output) output = static_cast<int>(t);
    }
    int output_gradient = -1;
    if (output >= 0) {
      Tensor gradient = graph.tensors[static_cast<size_t>(output)];
      gradient.name = "dy";
      gradient.role = Role::output_gradient;
      output_gradient = graph.add(std::move(gradient));
    }
    lowering.backward = ops::reverse(graph, output, output_gradient, input, /*input_wanted=*/input >= 0);
  }
  lowering.tensors = std::move(graph.tensors);
  // The head's forward is followed at once by its backward and the embedding keeps nothing: recompute is for layers.
  apply_recompute(lowering,
                  unit.kind == model::UnitKind::layer ? request.job.schedule.recompute : job::Recompute::none);
  for (Tensor& tensor : lowering.tensors) {
    if (tensor.role != Role::saved) continue;
    tensor.offset = lowering.saved_bytes;
    lowering.saved_bytes += round_up(tensor.bytes(), device::alignment);
  }
  return lowering;
}

std::vector<bool> split_backward(UnitLowering& unit) {
  const size_t count = unit.backward.size();
  std::vector<bool> in_weight_half(count, false);
  std::vector<bool> needed(unit.tensors.size(), false);  // by the input half
  for (size_t i = count; i-- > 0;) {
    const Op& op = unit.backward[i];
    bool input = op.half != ops::Half::weight && !op.remade;
    if (op.remade)
      input = std::any_of(op.out.begin(), op.out.end(), [&](int t) { return needed[static_cast<size_t>(t)]; });
    in_weight_half[i] = !input;
    if (input)
      for (int t : op.in) needed[static_cast<size_t>(t)] = true;
  }
  std::vector<bool> made(unit.tensors.size(), false);
  for (size_t i = 0; i < count; ++i) {
    if (!in_weight_half[i]) {
      for (int t : unit.backward[i].out) made[static_cast<size_t>(t)] = true;
      continue;
    }
    for (int t : unit.backward[i].in) {
      Tensor& tensor = unit.tensors[static_cast<size_t>(t)];
      if (made[static_cast<size_t>(t)] && tensor.role == Role::temporary) tensor.role = Role::held;
    }
  }
  for (Tensor& tensor : unit.tensors) {
    if (tensor.role != Role::held) continue;
    tensor.offset = unit.held_bytes;
    unit.held_bytes += round_up(tensor.bytes(), device::alignment);
  }
  return in_weight_half;
}

namespace {

/// Where a block's temporaries live: tensors that share bytes form a class, whose members' lives follow one another.
class Storage {
 public:
  /// `kept`: tensors that others read after the block.
  Storage(std::vector<Op>& ops, std::vector<Tensor>& tensors, const std::vector<bool>& kept)
      : ops_(ops), tensors_(tensors), kept_(kept) {
    const size_t count = tensors.size();
    first_.assign(count, INT64_MAX);
    last_.assign(count, -1);
    class_of_.resize(count);
    for (size_t t = 0; t < count; ++t) class_of_[t] = static_cast<int>(t);
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto touch = [&](int t) {
        first_[static_cast<size_t>(t)] = std::min(first_[static_cast<size_t>(t)], static_cast<int64_t>(i));
        last_[static_cast<size_t>(t)] = std::max(last_[static_cast<size_t>(t)], static_cast<int64_t>(i));
      };
      for (int t : ops[i].in) touch(t);
      for (int t : ops[i].out) touch(t);
      if (ops[i].workspace >= 0) touch(ops[i].workspace);
    }
  }

  /// Lets outputs take over the bytes of inputs that die in the same operation.
  void share() {
    for (size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      if (op.out.empty()) continue;
      for (int candidate : ops::in_place_inputs(op))
        if (unite(op.in[static_cast<size_t>(candidate)], op.out[0], static_cast<int64_t>(i))) break;
    }
  }

  /// Offsets for all temporaries; returns the scratch's extent. Those that share an outside tensor's bytes move there.
  int64_t place_temporaries() {
    std::unordered_map<int, Interval> lives;  // by class
    std::vector<int> order;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (last_[t] < 0) continue;
      const int c = class_of_[t];
      auto [at, fresh] = lives.try_emplace(c, Interval{first_[t], last_[t], tensors_[t].bytes()});
      if (fresh) order.push_back(c);
      at->second.begin = std::min(at->second.begin, first_[t]);
      at->second.end = std::max(at->second.end, last_[t]);
    }
    std::vector<Interval> intervals;
    std::unordered_map<int, size_t> index;
    for (int c : order) {
      if (outside(c) >= 0) continue;
      index[c] = intervals.size();
      intervals.push_back(lives.at(c));
    }
    const int64_t extent = place(intervals);
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (last_[t] < 0 || tensors_[t].role != Role::temporary) continue;
      const int owner = outside(class_of_[t]);
      if (owner >= 0) {
        tensors_[t].formal = tensors_[static_cast<size_t>(owner)].formal;
        tensors_[t].offset = tensors_[static_cast<size_t>(owner)].offset;
      } else {
        tensors_[t].offset = intervals[index.at(class_of_[t])].offset;
      }
    }
    return extent;
  }

 private:
  /// The member of a class whose bytes come from outside the block, or -1.
  int outside(int c) const {
    for (size_t t = 0; t < tensors_.size(); ++t)
      if (class_of_[t] == c && tensors_[t].role != Role::temporary) return static_cast<int>(t);
    return -1;
  }

  bool unite(int in, int out, int64_t op) {
    const Tensor &a = tensors_[static_cast<size_t>(in)], &b = tensors_[static_cast<size_t>(out)];
    const int ca = class_of_[static_cast<size_t>(in)], cb = class_of_[static_cast<size_t>(out)];
    if (ca == cb || a.bytes() != b.bytes()) return false;
    // Outside tensors that no later block reads may be overwritten; all others keep what they hold.
    const bool mortal = a.role == Role::temporary || a.role == Role::saved || a.role == Role::output_gradient;
    if (!mortal || kept_[static_cast<size_t>(in)] || (outside(ca) >= 0 && outside(cb) >= 0)) return false;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (class_of_[t] == ca && last_[t] > op) return false;
      if (class_of_[t] == cb && first_[t] < op) return false;
    }
    for (int& c : class_of_)
      if (c == cb) c = ca;
    return true;
  }

  std::vector<Op>& ops_;
  std::vector<Tensor>& tensors_;
  const std::vector<bool>& kept_;
  std::vector<int64_t> first_, last_;
  std::vector<int> class_of_;
};

}  // namespace

Block make_block(std::string name, Phase phase, std::vector<Op> ops, const std::vector<Tensor>& tensors,
                 const FormalBytes& bytes, const device::Planner& planner, const std::vector<Op>& later) {
  Block block;
  block.name = std::move(name);
  block.phase = phase;
  block.ops = std::move(ops);

  std::unordered_map<int, int> renumbered;
  for (Op& op : block.ops) {
    for (std::vector<int>* operands : {&op.in, &op.out})
      for (int& t : *operands) {
        const auto [at, fresh] = renumbered.try_emplace(t, static_cast<int>(block.tensors.size()));
        if (fresh) block.tensors.push_back(tensors[static_cast<size_t>(t)]);
        t = at->second;
      }
  }
  for (Op& op : block.ops) {
    const int64_t workspace = planner.workspace_bytes(op, block.tensors);
    if (workspace == 0) continue;
    op.workspace = static_cast<int>(block.tensors.size());
    block.tensors.push_back({.name = "workspace", .dtype = DType::u8, .shape = {workspace}});
  }

  // Formals for all that comes from outside, in order of first appearance.
  const auto formal_of = [&](Role role) {
    for (size_t f = 0; f < block.formals.size(); ++f)
      if (block.formals[f].role == role) return static_cast<int>(f);
    block.formals.push_back({role});
    return static_cast<int>(block.formals.size()) - 1;
  };
  for (Tensor& tensor : block.tensors) {
    if (tensor.role == Role::temporary) continue;
    tensor.formal = formal_of(tensor.role);
    Formal& formal = block.formals[static_cast<size_t>(tensor.formal)];
    formal.bytes = std::max(formal.bytes, tensor.offset + tensor.bytes());
    if (tensor.role == Role::parameter) formal.bytes = std::max(formal.bytes, bytes.parameters);
    if (tensor.role == Role::gradient) formal.bytes = std::max(formal.bytes, bytes.gradients);
    if (tensor.role == Role::saved) formal.bytes = std::max(formal.bytes, bytes.saved);
    if (tensor.role == Role::held) formal.bytes = std::max(formal.bytes, bytes.held);
  }

  std::vector<bool> kept(block.tensors.size(), false);
  for (const Op& op : later)
    for (int t : op.in)
      if (const auto found = renumbered.find(t); found != renumbered.end())
        kept[static_cast<size_t>(found->second)] = true;
  Storage storage(block.ops, block.tensors, kept);
  storage.share();
  const int64_t scratch = storage.place_temporaries();
  if (scratch > 0) {
    const int formal = formal_of(Role::temporary);
    block.formals[static_cast<size_t>(formal)].bytes = scratch;
    for (Tensor& tensor : block.tensors)
      if (tensor.formal < 0) tensor.formal = formal;
  }

  // A formal is read if some tensor in it is read before the block has written that tensor.
  std::vector<bool> written(block.tensors.size(), false);
  for (const Op& op : block.ops) {
    const auto formal = [&](int t) -> Formal& {
      return block.formals[static_cast<size_t>(block.tensors[static_cast<size_t>(t)].formal)];
    };
    for (int t : op.in)
      if (!written[static_cast<size_t>(t)]) formal(t).read = true;
    if (const int w = ops::written_input(op); w >= 0) formal(op.in[static_cast<size_t>(w)]).written = true;
    for (int t : op.out) {
      if (ops::updates_output(op, block.tensors[static_cast<size_t>(t)])) formal(t).read = true;
      formal(t).written = true;
      written[static_cast<size_t>(t)] = true;
    }
    const ops::Cost cost = ops::cost(op, block.tensors);
    block.cost += cost;
    if (op.remade) block.recompute_flops += cost.flops;
  }
  return block;
}

}  // namespace strata::step
