// Plain loads and stores, as fast as memory lets them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/stream.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>

#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/stream.h"

HWY_BEFORE_NAMESPACE();
namespace strata::device::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// `count` bytes, a multiple of 64. Returns something of what was read; `nothing` is 0, which only the caller knows.
uint8_t stream(Stream::Use use, uint8_t* at, int64_t count, uint8_t nothing) {
  const hn::CappedTag<uint8_t, 64> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto seen = hn::Zero(d);
  const auto change = hn::Set(d, nothing);
  switch (use) {
    case Stream::read:
      for (int64_t i = 0; i < count; i += lanes) seen = hn::Or(seen, hn::LoadU(d, at + i));
      break;
    case Stream::write:
      for (int64_t i = 0; i < count; i += lanes) hn::StoreU(change, d, at + i);
      break;
    case Stream::update:
      for (int64_t i = 0; i < count; i += lanes) hn::StoreU(hn::Or(hn::LoadU(d, at + i), change), d, at + i);
      break;
  }
  return hn::GetLane(seen);
}

}  // namespace strata::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::device {
namespace cpu {

HWY_EXPORT(stream);

namespace {
std::atomic<uint8_t> nothing{0}, seen{0};
}

}  // namespace cpu

std::unique_ptr<Kernel> make_stream(int threads, std::vector<Stream> streams) {
  using namespace cpu;
  constexpr int64_t line = 64, piece = 1024;
  int64_t largest = 0;
  for (const Stream& s : streams) largest = std::max(largest, s.bytes);
  const int64_t pieces = divide_up(largest, piece);
  const auto function = HWY_DYNAMIC_DISPATCH(stream);
  return make_kernel([=](Operands operands, const Launch&) {
    parallel_for(threads, pieces, 16, [&](int64_t begin, int64_t end) {
      uint8_t all = 0;
      for (int64_t p = begin; p < end; ++p)
        for (size_t i = 0; i < streams.size(); ++i) {
          const int64_t lines = streams[i].bytes / line, from = lines * p / pieces, to = lines * (p + 1) / pieces;
          all |= function(streams[i].use, pointer<uint8_t>(operands[i]) + from * line, (to - from) * line, nothing);
        }
      seen = all;
    });
  });
}

}  // namespace strata::device
#endif
