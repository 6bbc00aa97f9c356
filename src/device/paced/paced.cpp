#include "device/paced.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "core/error.h"

namespace strata::device {
namespace {

using Clock = std::chrono::steady_clock;

class PacedKernel final : public Kernel {
 public:
  PacedKernel(std::unique_ptr<Kernel> inner, Clock::duration lasts) : inner_(std::move(inner)), lasts_(lasts) {}
  void run(std::span<const Address> operands, const Launch& launch) override { inner_->run(operands, launch); }
  Kernel& inner() { return *inner_; }
  Clock::duration lasts() const { return lasts_; }

 private:
  std::unique_ptr<Kernel> inner_;
  Clock::duration lasts_;
};

class Paced final : public Device {
 public:
  Paced(std::unique_ptr<Device> inner, OpSeconds seconds) : inner_(std::move(inner)), seconds_(std::move(seconds)) {}

  int64_t workspace_bytes(const ops::Op& op, std::span<const ops::Tensor> tensors) const override {
    return inner_->workspace_bytes(op, tensors);
  }
  std::string description() const override { return "paced " + inner_->description(); }

  void upload(Address to, const void* from, int64_t bytes) override { inner_->upload(to, from, bytes); }
  void download(void* to, Address from, int64_t bytes) override { inner_->download(to, from, bytes); }
  void fill_zero(Address to, int64_t bytes) override { inner_->fill_zero(to, bytes); }
  void copy(Address to, Address from, int64_t bytes) override { inner_->copy(to, from, bytes); }

  std::unique_ptr<Kernel> prepare(const ops::Op& op, std::span<const ops::Tensor> tensors) override {
    const double seconds = seconds_(op, tensors);
    STRATA_CHECK(seconds >= 0, "{} s for {}", seconds, ops::name_of(op.kind));
    return std::make_unique<PacedKernel>(inner_->prepare(op, tensors), std::chrono::duration_cast<Clock::duration>(
                                                                           std::chrono::duration<double>(seconds)));
  }
  void launch(Kernel& kernel, std::span<const Address> operands, const Launch& launch) override {
    auto& paced = static_cast<PacedKernel&>(kernel);
    busy_until_ = std::max(busy_until_, Clock::now()) + paced.lasts();
    inner_->launch(paced.inner(), operands, launch);
  }
  void synchronise() override {
    inner_->synchronise();
    std::this_thread::sleep_until(busy_until_);
  }

  void encode(const Wire& wire, DType dtype, Address x, int64_t n, Address out, const Noise& noise) override {
    inner_->encode(wire, dtype, x, n, out, noise);
  }
  void encode_with_feedback(const Wire& wire, DType dtype, Address x, int64_t n, Address error, Address out,
                            const Noise& noise) override {
    inner_->encode_with_feedback(wire, dtype, x, n, error, out, noise);
  }
  void decode(const Wire& wire, Address in, int64_t n, DType dtype, Address y) override {
    inner_->decode(wire, in, n, dtype, y);
  }
  void reduce(const Wire& wire, std::span<const Address> sources, std::span<const int64_t> widths, int own,
              DType own_dtype, int64_t n, DType y_dtype, Address y, bool accumulate) override {
    inner_->reduce(wire, sources, widths, own, own_dtype, n, y_dtype, y, accumulate);
  }

 protected:
  Address do_allocate(int64_t bytes) override {
    Memory memory = inner_->allocate(bytes);
    const Address address = memory.address();
    held_[address.value()] = std::move(memory);
    return address;
  }
  void do_release(Address address, int64_t) noexcept override { held_.erase(address.value()); }

 private:
  std::unique_ptr<Device> inner_;
  OpSeconds seconds_;
  Clock::time_point busy_until_{};
  std::map<uintptr_t, Memory> held_;  // after inner_: goes first
};

}  // namespace

std::unique_ptr<Device> make_paced(std::unique_ptr<Device> inner, OpSeconds seconds) {
  return std::make_unique<Paced>(std::move(inner), std::move(seconds));
}

}  // namespace strata::device
