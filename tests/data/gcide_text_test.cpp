// tools/gcide_text.sh on a made-up piece of dictionary in the form of gcide.dict.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "data/temp_folder.h"

namespace strata::data {
namespace {

int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string script(const std::string& in, const std::string& out) {
  return "sh " STRATA_SOURCE_DIR "/tools/gcide_text.sh " + in + " " + out + " 2>/dev/null";
}

TEST(GcideText, KeepsDefinitionsAndQuotationsOnly) {
  const TempFolder folder;
  folder.write("dict",
               R"(00-database-info
   This file may be redistributed under terms.

   A motto. --Someone.
Flumbar \Flum"bar\ (fl[u^]m"b[aum]r), n.; pl. {Flumbars}. [OE.
   flumbare, fr. F. flumb['e] [root]12. See {Flum}.] (Zo["o]l.)
   1. A small, [ae]rial beast ({Flumbar vulgaris}). [Obs.]
      [1913 Webster]

            A flumbar bit [the] dog.              --Nobody.
      [1913 Webster]

   2. (Law) A writ; as, a flumbar lies. [R.] --Smith.
      [1913 Webster]

   Syn: Beast; writ.
        [1913 Webster] Flumbarly

Flumbarly \Flum"bar*ly\, adv.
   In the way of a flumbar. -- {Flum"bar*li*ness} (?), n.
   [1913 Webster]

Gromp \Gromp\, v. t.
   [PJC]
)");
  const std::string in = (folder / "in.dict.dz").string(), out = (folder / "out.txt").string();
  ASSERT_EQ(shell("gzip -c " + (folder / "dict").string() + " > " + in), 0);
  ASSERT_EQ(shell(script(in, out)), 0);
  EXPECT_EQ(folder.read("out.txt"),
            "Flumbar, noun. A small, \xc3\xa6rial beast (Flumbar vulgaris).\n"
            "A flumbar bit the dog. --Nobody.\n"
            "A writ; as, a flumbar lies. --Smith.\n"
            "Synonyms: Beast; writ.\n"
            "\f\n"
            "Flumbarly, adverb. In the way of a flumbar. -- Flumbarliness, n.\n"
            "\f\n");
}

TEST(GcideText, LeavesNothingWhenTheInputIsBad) {
  const TempFolder folder;
  const std::string out = (folder / "out.txt").string();
  EXPECT_EQ(shell(script((folder / "none").string(), out)), 2);
  EXPECT_EQ(shell(script(folder.write("text", "not compressed").string(), out)), 2);
  ASSERT_EQ(shell("gzip -c " + folder.write("plain", "no entry\n").string() + " > " + (folder / "empty.dz").string()),
            0);
  EXPECT_NE(shell(script((folder / "empty.dz").string(), out)), 0);
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("empty.dz", "plain", "text"));
}

}  // namespace
}  // namespace strata::data
