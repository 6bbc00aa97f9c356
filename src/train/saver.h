#pragma once
// Saving a run's model: the seam where crash-safe sharded checkpoints will sit. Weights only, as a Hugging Face folder.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/hf.h"
#include "job/job.h"

namespace strata::train {

class Saver {
 public:
  /// Creates the folder for saved models; a run error names it when that fails. One that holds an earlier run's models is
  /// an input error, so that runs never mix, unless `replace`: then those go when the first new one is complete.
  Saver(const job::Job& job, bool replace);

  /// Writes FOLDER/step-NNNNNN whole or not at all, with the job's tokenizer inside, then removes all but the newest
  /// run.save.keep. Returns its path.
  std::filesystem::path save(int64_t step, const checkpoint::ParameterSource& weights);

 private:
  const job::Job& job_;
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> saved_;  ///< by this run, oldest first
  std::vector<std::filesystem::path> earlier_;
};

}  // namespace strata::train
