#pragma once
// Point-to-point messages between ranks: what every collective is made of. mpi/ carries them between processes, local.h
// between threads of one.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace strata::comm {

/// Methods may be called from one thread at a time. Messages of one sender to one receiver with one tag arrive in the order
/// sent, each into the receive of the same place in that order, which must be of the same size.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t ranks() const = 0;

  /// Names a message that is under way.
  using Ticket = int32_t;
  /// Begin a message; the memory is the transport's until it is done. At most a gibibyte; tags from 0 to tags - 1.
  virtual Ticket send(int64_t to, int32_t tag, device::Address from, int64_t bytes) = 0;
  virtual Ticket receive(int64_t from, int32_t tag, device::Address to, int64_t bytes) = 0;
  /// Helps along all messages that are under way. Never waits; once for each turn of a loop that does.
  virtual void poll() = 0;
  /// Whether a message was done when polled last, or is by now. A ticket that is done is no more.
  virtual bool done(Ticket ticket) = 0;

  static constexpr int32_t tags = 32768;
};

/// What ranks agree on before and between steps: small, on the host, by all ranks in the same order, while no transfer is
/// under way. Each waits at most `seconds` for the others; then a run error names those that did not come, and `what`.
class Control {
 public:
  Control(Transport& transport, double seconds) : transport_(transport), seconds_(seconds) {}

  int64_t rank() const { return transport_.rank(); }
  int64_t ranks() const { return transport_.ranks(); }

  /// Everybody's value of `bytes` bytes, by rank.
  std::vector<std::byte> gather(std::span<const std::byte> mine, const char* what);
  template <class T>
  std::vector<T> gather(const T& mine, const char* what) {
    const std::vector<std::byte> all = gather(std::as_bytes(std::span(&mine, 1)), what);
    std::vector<T> values(static_cast<size_t>(ranks()));
    std::copy(all.begin(), all.end(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  /// From one rank to another; both name the size.
  void send(int64_t to, std::span<const std::byte> bytes, const char* what);
  void receive(int64_t from, std::span<std::byte> bytes, const char* what);
  void barrier(const char* what) { gather(char{0}, what); }

 private:
  void wait(std::span<const Transport::Ticket> tickets, std::span<const int64_t> peers, const char* what);

  Transport& transport_;
  double seconds_;
};

}  // namespace strata::comm
