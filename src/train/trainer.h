#pragma once
// The training loop: data in, updates, validation, saves, signals. What happens inside a step is the step program's business.

#include <filesystem>
#include <span>

#include "device/device.h"
#include "execute/transfers.h"
#include "job/job.h"
#include "train/observer.h"

namespace strata::train {

/// Everything about a job that can be wrong before a step is taken, and that this build can run it: throws an input error.
void check_trainable(const job::Job& job);

/// Trains the job and tells the observers, in the order given. With `peers`, every rank calls this; what is measured is the
/// same on all of them, and rank 0 writes the models. Saves a Hugging Face folder, tokenizer included,
/// every run.save.every steps, at the end, and when SIGINT, SIGTERM or SIGUSR1 asks for it, which also ends the run.
/// Throws a run error that names the step when the loss is not finite; nothing is saved then.
/// `replace`: models that an earlier run left in the same folder may go (see saver.h).
RunEnd train(const job::Job& job, device::Device& device, std::span<Observer* const> observers, bool replace = false,
             const execute::Peers& peers = {});

}  // namespace strata::train
