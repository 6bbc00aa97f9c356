#include "step/recompute.h"

#include <unordered_map>

#include "core/error.h"

namespace strata::step {

using ops::Op;
using ops::Role;

namespace {

/// Re-lists forward operations in front of the backward operations that need what they made.
class Remaker {
 public:
  Remaker(UnitLowering& unit, job::Recompute recompute) : unit_(unit), recompute_(recompute) {
    for (size_t i = 0; i < unit.forward.size(); ++i)
      for (int out : unit.forward[i].out) producer_[out] = i;
  }

  void run() {
    for (const Op& op : unit_.backward) {
      Op copy = op;
      for (int& in : copy.in) in = obtain(in);
      result_.push_back(std::move(copy));
    }
    unit_.backward = std::move(result_);
  }

 private:
  bool kept(const Op& producer) const {
    switch (recompute_) {
      case job::Recompute::none: return true;
      case job::Recompute::selective: return producer.kind != ops::Kind::attention;
      case job::Recompute::full: return false;
    }
    return true;
  }

  /// The tensor that holds forward tensor `t` during the backward.
  int obtain(int t) {
    ops::Tensor& tensor = unit_.tensors[static_cast<size_t>(t)];
    const auto found = producer_.find(t);
    if (found == producer_.end() || tensor.role == Role::saved) return t;  // the backward's own, or from outside
    if (const auto again = remade_.find(t); again != remade_.end()) return again->second;
    const Op& producer = unit_.forward[found->second];
    if (kept(producer)) {
      STRATA_CHECK(tensor.role == Role::temporary, "{} cannot be kept", tensor.name);
      tensor.role = Role::saved;
      return t;
    }
    Op again = producer;
    for (int& in : again.in) in = obtain(in);
    for (int& out : again.out) {
      ops::Tensor clone = unit_.tensors[static_cast<size_t>(out)];
      clone.role = Role::temporary;
      clone.name += " again";
      const int id = static_cast<int>(unit_.tensors.size());
      unit_.tensors.push_back(std::move(clone));
      remade_[out] = id;
      out = id;
    }
    again.remade = true;
    result_.push_back(std::move(again));
    return remade_.at(t);
  }

  UnitLowering& unit_;
  job::Recompute recompute_;
  std::unordered_map<int, size_t> producer_;
  std::unordered_map<int, int> remade_;
  std::vector<Op> result_;
};

}  // namespace

void apply_recompute(UnitLowering& unit, job::Recompute recompute) { Remaker(unit, recompute).run(); }

}  // namespace strata::step
