#pragma once
// Asking a run to stop after its current step.

namespace strata::train {

/// While it lives, SIGINT, SIGTERM and SIGUSR1 set a flag instead of ending the process; a second SIGINT ends it at once.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  bool received() const;
};

}  // namespace strata::train
