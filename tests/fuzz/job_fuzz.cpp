// Any text is either a job, whose shown form reads back to the same job, or bad input; never anything else.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "job/job.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using strata::job::Job;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  // The first line, if it opens with "--set ", is an option.
  std::vector<std::string> sets;
  if (text.starts_with("--set ")) {
    const size_t end = std::min(text.find('\n'), text.size());
    sets.emplace_back(text.substr(6, end - 6));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  try {
    const Job job = strata::job::parse(text, "/fuzz/job.toml", sets);
    const Job again = strata::job::parse(strata::job::show(job), "/fuzz/shown.toml");
    if (!(again == job)) std::abort();
  } catch (const strata::Error& error) {
    if (error.fault() != strata::Fault::input) std::abort();
  }
  return 0;
}
