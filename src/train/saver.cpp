#include "train/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "data/tokenizer.h"
#include "files/atomic_file.h"

namespace strata::train {

namespace fs = std::filesystem;

Saver::Saver(const job::Job& job, bool replace) : job_(job), folder_(fs::path(job.run.folder) / job.run.save.folder) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw run_error("{}: cannot create the folder for saved models: {}", folder_.string(), error.message());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    if (entry.path().filename().string().starts_with("step-")) earlier_.push_back(entry.path());
  if (!earlier_.empty() && !replace)
    throw input_error(
        "{}: holds models that an earlier run saved ({}); choose another place with --set run.folder=FOLDER, or give "
        "--replace "
        "to let this run take their place",
        folder_.string(), earlier_.front().filename().string());
}

fs::path Saver::save(int64_t step, const checkpoint::ParameterSource& weights) {
  const fs::path target = folder_ / fmt::format("step-{:06}", step);
  files::AtomicFolder folder(target);
  checkpoint::write_hf(folder.partial(), job_.model, weights);
  std::error_code error;
  for (const data::TokenizerFile& file : data::tokenizer_files(job_.data.tokenizer)) {
    fs::copy_file(file.path, folder.partial() / file.name, error);
    if (error)
      throw run_error("{}: cannot copy the tokenizer {}: {}", target.string(), file.path.string(), error.message());
  }
  folder.commit();

  for (const fs::path& old : earlier_)
    if (old != target) fs::remove_all(old, error);
  earlier_.clear();
  saved_.push_back(target);
  while (static_cast<int64_t>(saved_.size()) > std::max<int64_t>(job_.run.save.keep, 1)) {
    fs::remove_all(saved_.front(), error);
    saved_.erase(saved_.begin());
  }
  return target;
}

}  // namespace strata::train
