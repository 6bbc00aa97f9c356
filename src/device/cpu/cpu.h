#pragma once
// The CPU as a device. Open to derivation only for the poison device, which changes where memory lives and who may
// touch it.

#include "device/device.h"

namespace strata::device::cpu {

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads);

  std::string description() const override;
  int64_t workspace_bytes(const ops::Op& op, std::span<const ops::Tensor> tensors) const override;
  void upload(Address to, const void* from, int64_t bytes) override;
  void download(void* to, Address from, int64_t bytes) override;
  void fill_zero(Address to, int64_t bytes) override;
  void copy(Address to, Address from, int64_t bytes) override;
  std::unique_ptr<Kernel> prepare(const ops::Op& op, std::span<const ops::Tensor> tensors) override;
  void launch(Kernel& kernel, std::span<const Address> operands, const Launch& launch) override;
  void synchronise() override {}
  // wire.cpp
  void encode(const Wire& wire, DType dtype, Address x, int64_t n, Address out, const Noise& noise) override;
  void encode_with_feedback(const Wire& wire, DType dtype, Address x, int64_t n, Address error, Address out,
                            const Noise& noise) override;
  void decode(const Wire& wire, Address in, int64_t n, DType dtype, Address y) override;
  void reduce(const Wire& wire, std::span<const Address> sources, std::span<const int64_t> widths, int own,
              DType own_dtype, int64_t n, DType y_dtype, Address y, bool accumulate) override;

 protected:
  Address do_allocate(int64_t bytes) override;
  void do_release(Address address, int64_t bytes) noexcept override;

 private:
  int threads_;
};

/// Pages straight from the operating system; throws a run error that names the size when it has none left.
void* map_pages(int64_t bytes, int protection);
int64_t page_bytes();

}  // namespace strata::device::cpu
