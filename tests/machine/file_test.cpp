#include "machine/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/error.h"

namespace strata::machine {
namespace {

using testing::HasSubstr;

std::string shipped(const std::string& name) {
  std::ifstream file(STRATA_SOURCE_DIR "/machines/" + name + ".toml");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MachineFile, FrontierIsATreeOfThreeLevels) {
  const Machine frontier = parse_machine(shipped("frontier"), "frontier.toml");
  EXPECT_EQ(frontier.name, "frontier");
  EXPECT_EQ(frontier.levels, (std::vector<Level>{{"package", 2}, {"node", 4}, {"system", 0}}));
  ASSERT_EQ(frontier.links.size(), 3u);
  EXPECT_EQ(frontier.device.peak, 191.5e12);
  EXPECT_EQ(frontier.device.product_share, 0.56);
  // Slower with distance, and what enters a node goes through four links for eight ranks.
  EXPECT_GT(frontier.links[0].bandwidth, frontier.links[1].bandwidth);
  EXPECT_GT(frontier.links[1].bandwidth, frontier.links[2].bandwidth);
  EXPECT_EQ(frontier.links[2].shared_by, 2);
  for (const Link& link : frontier.links) EXPECT_FALSE(link.source.empty());
}

TEST(MachineFile, WhatIsShownReadsBackTheSame) {
  Machine machine = parse_machine(shipped("frontier"), "frontier.toml");
  machine.description = "a \"quoted\" name, and a \\";
  machine.links[1].latency = 1.0 / 3e5;
  machine.links[2].bandwidth_alone = 1e10 / 3;
  const Machine again = parse_machine(show(machine), "again.toml");
  EXPECT_EQ(again.description, machine.description);
  EXPECT_EQ(again.levels, machine.levels);
  EXPECT_DOUBLE_EQ(again.device.peak_fp32, machine.device.peak_fp32);
  EXPECT_DOUBLE_EQ(again.device.launch, machine.device.launch);
  for (size_t level = 0; level < machine.links.size(); ++level) {
    EXPECT_DOUBLE_EQ(again.links[level].bandwidth, machine.links[level].bandwidth);
    EXPECT_DOUBLE_EQ(again.links[level].latency, machine.links[level].latency);
    EXPECT_EQ(again.links[level].shared_by, machine.links[level].shared_by);
    EXPECT_DOUBLE_EQ(again.links[level].bandwidth_alone, machine.links[level].bandwidth_alone);
    EXPECT_EQ(again.links[level].source, machine.links[level].source);
  }
}

struct Fault {
  const char *what, *with, *said;
};

TEST(MachineFile, NamesFileLineAndKeyOfWhatIsWrong) {
  const std::string good = shipped("frontier");
  for (const Fault& fault :
       {Fault{"name = \"frontier\"", "nome = \"frontier\"", "did you mean \"name\""},
        Fault{"name = \"frontier\"", "", "the machine lacks \"name\""},
        Fault{"width = 4", "width = 0", "width of [[level]] must be a whole number from 1"},
        Fault{"width = 4", "width = 2.5", "width of [[level]] must be a whole number from 1"},
        Fault{"width = 4", "width = \"*\"", "on the outermost level only"},
        Fault{"name = \"node\"", "name = \"package\"", "a name of its own"},
        Fault{"name = \"node\"", "name = \"all\"", "a name of its own"},
        Fault{"memory = 64e9", "memory = -1", "memory of [device] must be a number above 0"},
        Fault{"memory = 64e9", "memory = \"64 GB\"", "memory of [device] must be a number above 0"},
        Fault{"product_share = 0.56", "product_share = 1.2", "product_share of [device] must be at most 1"},
        Fault{"memory_share = 0.78", "memory_share = 0", "memory_share of [device] must be a number above 0"},
        Fault{"launch = 5e-6", "lunch = 5e-6", "did you mean \"launch\""},
        Fault{"latency = 3.66e-6", "", "[[level]] lacks \"latency\""},
        Fault{"shared_by = 2", "shared_by = 0", "shared_by of [[level]]"}, Fault{"[device]", "[device", "m.toml:"},
        Fault{"[device]", "[divice]", "no key \"divice\""}}) {
    std::string text = good;
    const auto at = text.find(fault.what);
    ASSERT_NE(at, std::string::npos) << fault.what;
    text.replace(at, std::string(fault.what).size(), fault.with);
    try {
      parse_machine(text, "m.toml");
      ADD_FAILURE() << fault.with;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("m.toml:"), HasSubstr(fault.said)));
    }
  }
  EXPECT_THROW(parse_machine("", "m.toml"), Error);
}

TEST(Detected, PackagesOfEqualSizeAreALevel) {
  const std::vector<int64_t> nodes = {0, 0, 0, 0, 4, 4, 4, 4}, packages = {0, 0, 1, 1, 0, 0, 1, 1};
  EXPECT_EQ(detected(nodes, packages), (std::vector<Level>{{"package", 2}, {"node", 2}, {"system", 2}}));
  // Unbound ranks, or packages of other sizes: a node is one package.
  const std::vector<int64_t> unbound(8, -1), uneven = {0, 0, 1, 1, 0, 1, 1, 1};
  for (const auto& other : {unbound, uneven})
    EXPECT_EQ(detected(nodes, other), (std::vector<Level>{{"package", 4}, {"node", 1}, {"system", 2}}));
}

TEST(Detected, NodesOfOtherSizesAndRanksOutOfOrderAreRefused) {
  const std::vector<int64_t> unbound(6, -1);
  const auto said = [&](const std::vector<int64_t>& nodes) {
    try {
      detected(nodes, unbound);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(said({0, 0, 0, 0, 4, 4}), HasSubstr("4 on the node of rank 0, 2 on that of rank 4"));
  EXPECT_THAT(said({0, 1, 0, 1, 0, 1}), HasSubstr("not neighbours"));
}

}  // namespace
}  // namespace strata::machine
