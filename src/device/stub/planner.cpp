#include "device/device.h"
#include "device/workspace.h"

namespace strata::device {
namespace {

class FormulaPlanner final : public Planner {
 public:
  explicit FormulaPlanner(int threads) : threads_(threads) {}
  int64_t workspace_bytes(const ops::Op& op, std::span<const ops::Tensor> tensors) const override {
    return own_workspace(op, tensors, threads_);
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Planner> make_formula_planner(int threads) { return std::make_unique<FormulaPlanner>(threads); }

}  // namespace strata::device
