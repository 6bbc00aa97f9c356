#pragma once
// Holds a model folder against numbers that Hugging Face's own library computed from it: logits, loss, gradients and the
// losses of a few training steps.
//
// The folder: config.json, model.safetensors, and reference.safetensors with
//   tokens            i32 [S + 1, B, L + 1]
//   logits            f32 [B, L, vocab], loss f32 [1], grad.NAME for each parameter under its Hugging Face name, grad_norm f32
//                     [1]: of batch 0 (inputs [:, :-1], targets [:, 1:])
//   train_losses      f64 [S], train_grad_norms f64 [S]: of S AdamW steps from the same weights, step s on batch s
// AdamW: lr 1e-3, betas 0.9 and 0.95, epsilon 1e-8, weight decay 0.1 on all tensors, gradient norm clipped at 1.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "job/job.h"

namespace strata::train {

struct VerifyRow {
  std::string what;     ///< "logits", "gradient gpt_neox.layers.0...", "training losses", ...
  std::string measure;  ///< how deviation is counted
  double deviation = 0, bound = 0;
  bool passed() const { return deviation <= bound; }  // false for NaN
};

struct VerifyReport {
  std::string model;  ///< "gpt2, 3 layers, hidden 64"
  std::vector<VerifyRow> rows;
  bool passed() const;
};

/// A tree to verify on: data-parallel ranks as packages of two in nodes, and two nodes once there are enough; stages outermost.
std::vector<machine::Level> tree_of(int64_t data, int64_t stages);

/// Where a model is verified.
struct VerifyOn {
  DType compute = DType::f32;
  int threads = 1;                ///< of a rank
  int64_t ranks = 1;              ///< threads of this process, on a made-up tree of three levels
  std::string placement = "ddp";  ///< a preset, on full wires
  int64_t pipeline = 1;           ///< stages, each of ranks / pipeline data-parallel ranks; a sequence a micro-batch
  job::Pipeline schedule = job::Pipeline::one_f_one_b;
  std::function<std::unique_ptr<device::Device>(int threads)> make_device = device::make_cpu;
};

/// Input errors for a folder that lacks something or does not fit; a missed bound is a row that did not pass. Bounds of
/// bf16 and fp16 are those of their rounding: verify.cpp says how they come about. Where the reference's batch has fewer
/// sequences than there are ranks, the others compute on sequences in which no token counts.
VerifyReport verify_model(const std::filesystem::path& folder, const VerifyOn& on);

}  // namespace strata::train
