#include "core/error.h"
#include "core/text.h"
#include "files/atomic_file.h"
#include "job/keys.h"
#include "job/placement.h"

namespace strata::job {

machine::Machine load_machine(const std::string& name_or_path) {
  std::filesystem::path file = name_or_path;
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".toml")) {
    file = find_shipped("machines", name_or_path);
    if (file.empty()) {
      const std::vector<std::string> names = shipped_names("machines");
      std::string list;
      for (const std::string& each : names) list += (list.empty() ? "" : ", ") + each;
      throw input_error("run.machine: there is no machine \"{}\"{}; known: {}", name_or_path,
                        did_you_mean(name_or_path, names),
                        list.empty() ? "none (set STRATA_HOME to the folder that holds machines/)" : list);
    }
  }
  return machine::parse_machine(files::read_text(file), file.string());
}

machine::Machine machine_of(const Job& job, int64_t ranks) {
  if (job.run.machine.empty())
    throw input_error("run.machine: none is given; name one of machines/ or give the path of a machine file");
  machine::Machine machine = load_machine(job.run.machine);
  machine.levels = machine::fill_levels(machine.levels, ranks, "run.machine = " + job.run.machine);
  return machine;
}

std::vector<machine::Level> levels_of(const Job& job, int64_t ranks) {
  if (!job.mesh.levels.empty()) return machine::fill_levels(job.mesh.levels, ranks, "mesh.levels");
  return job.run.machine.empty() ? machine::one_host(ranks) : machine_of(job, ranks).levels;
}

}  // namespace strata::job
