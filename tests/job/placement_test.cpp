#include "job/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job_text.h"

namespace strata::job {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> usual = {"package", "node", "system"};

Sharding resolved(const std::vector<std::string>& sets, const std::vector<std::string>& levels = usual) {
  return resolve_placement(parsed(small_file, sets), levels);
}

std::array<int, 4> reaches(const Sharding& sharding) {
  return {sharding.weights, sharding.secondary, sharding.gradients, sharding.optimizer};
}

TEST(Placement, PresetsAreRowsOfFourLevels) {
  const auto row = [](const char* preset) { return reaches(resolved({std::string("placement.preset=") + preset})); };
  EXPECT_THAT(row("ddp"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(row("zero1"), ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(row("zero2"), ElementsAre(0, 0, 3, 3));
  EXPECT_THAT(row("zero3"), ElementsAre(3, 0, 3, 3));
  EXPECT_THAT(row("hsdp"), ElementsAre(2, 0, 2, 2));
  EXPECT_THAT(row("mics"), ElementsAre(2, 0, 2, 2));
  EXPECT_THAT(row("zeropp"), ElementsAre(3, 2, 3, 3));
  EXPECT_THAT(row("zero-topo"), ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(reaches(resolved({"placement.preset=hsdp", "placement.level=package"})), ElementsAre(1, 0, 1, 1));
}

TEST(Placement, PresetsSayTheSameAsTheirLevels) {
  EXPECT_EQ(resolved({"placement.preset=zero3"}),
            resolved({"placement={weights=\"all\", gradients=\"system\", optimizer=\"all\"}"}));
  EXPECT_EQ(resolved({"placement.preset=ddp"}), resolved({"placement.weights=none"}));
}

TEST(Placement, WiresOfThePresetAndOverThem) {
  const Sharding topo = resolved({"placement.preset=zero-topo"});
  EXPECT_THAT(topo.wires[0], Each(Wire::int8));
  EXPECT_THAT(topo.wires[1], Each(Wire::int4));
  EXPECT_THAT(topo.wires[2], Each(Wire::bf16));
  EXPECT_THAT(topo.wires[3], Each(Wire::bf16));
  const Sharding own = resolved(
      {"placement.preset=zero-topo", "placement.wires.reduction=int4", "placement.wires.gradients={node=\"fp32\"}"});
  EXPECT_THAT(own.wires[2], Each(Wire::int4));
  EXPECT_THAT(own.wires[1], ElementsAre(Wire::int4, Wire::fp32, Wire::int4));
  EXPECT_THAT(own.hops[1], ElementsAre(Hop{0, 1}, Hop{1, 2}, Hop{2, 3}));  // two wires are two hops
  EXPECT_THAT(resolved({"placement.preset=zero3"}).wires[0], Each(Wire::full));
}

TEST(Placement, OneHopALevelButTwoForGradientsOfTheQuantisedSchemes) {
  const Sharding topo = resolved({"placement.preset=zero-topo"});
  EXPECT_THAT(topo.hops[0], ElementsAre(Hop{0, 1}, Hop{1, 2}, Hop{2, 3}));
  EXPECT_THAT(topo.hops[1], ElementsAre(Hop{0, 2}, Hop{2, 3}));
  EXPECT_THAT(resolved({"placement.preset=zeropp"}).hops[1], ElementsAre(Hop{0, 2}, Hop{2, 3}));
  EXPECT_THAT(resolved({"placement.preset=zeropp", "placement.hops={gradients=[[\"package\"]]}"}).hops[1],
              ElementsAre(Hop{0, 1}, Hop{1, 2}, Hop{2, 3}));
  // Trees of other depths: within the node and beyond it.
  EXPECT_THAT(resolved({"placement.preset=zeropp"}, {"die", "package", "socket", "node", "rack", "system"}).hops[1],
              ElementsAre(Hop{0, 4}, Hop{4, 6}));
  EXPECT_THAT(resolved({"placement.preset=zeropp"}, {"node", "system"}).hops[1], ElementsAre(Hop{0, 1}, Hop{1, 2}));
}

TEST(Placement, DescribesItself) {
  EXPECT_EQ(describe(resolved({"placement.preset=zero-topo"}), usual),
            "weights over package, gradients over node, optimizer over system");
  EXPECT_EQ(describe(resolved({"placement.preset=zeropp"}), usual),
            "weights over system, secondary over node, gradients over system, optimizer over system");
  EXPECT_EQ(describe(resolved({}), usual), "weights on every rank, gradients on every rank, optimizer on every rank");
  EXPECT_EQ(describe_wires(resolved({"placement.preset=zero-topo"}), usual),
            "weights int8; gradients int4 in hops package+node; reduction bf16; update bf16");
  EXPECT_EQ(describe_wires(resolved({"placement.preset=zeropp"}), usual),
            "weights int8; gradients int4 in hops package+node, system");
  EXPECT_EQ(describe_wires(resolved({"placement.wires.reduction={system=\"int8\"}"}), usual),
            "reduction full over package, full over node, int8 over system");
  EXPECT_EQ(describe_wires(resolved({"placement.preset=zero3"}), usual), "full");
}

struct Illegal {
  std::vector<std::string> sets;
  std::string message;
};
class IllegalPlacement : public testing::TestWithParam<Illegal> {};

TEST_P(IllegalPlacement, IsRefused) {
  EXPECT_THAT(refusal(small_file, GetParam().sets), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, IllegalPlacement,
    testing::Values(
        Illegal{{"placement.weights=node"}, "gradients over none are narrower than weights over node"},
        Illegal{{"placement={weights=\"all\", gradients=\"node\", optimizer=\"all\"}"},
                "gradients over node are narrower than weights over system"},
        Illegal{{"placement={gradients=\"all\", optimizer=\"node\"}"},
                "optimizer over node is narrower than gradients over system"},
        Illegal{{"placement={gradients=\"package\"}"}, "optimizer over none is narrower than gradients over package"},
        Illegal{{"placement={secondary=\"package\", optimizer=\"all\"}"},
                "secondary over package must be strictly narrower than weights over none"},
        Illegal{{"placement={weights=\"node\", secondary=\"node\", gradients=\"node\", optimizer=\"all\"}"},
                "secondary over node must be strictly narrower than weights over node"},
        Illegal{{"placement={optimizer=\"nod\"}"},
                "placement.optimizer: no level is named \"nod\" (did you mean \"node\"?); the levels are package, "
                "node, system"},
        Illegal{{"placement={preset=\"hsdp\", level=\"rack\"}"}, "placement.level: no level is named \"rack\""},
        Illegal{{"placement.preset=zeropp", "mesh.levels=[4, \"*\"]", "mesh.level_names=[\"die\", \"cluster\"]"},
                "placement.preset zeropp shards secondary: no level is named \"node\""},
        Illegal{{"placement.preset=zeropp", "mesh.levels=[4, \"*\"]", "mesh.level_names=[\"die\", \"node\"]"},
                "secondary over node must be strictly narrower than weights over node"},
        Illegal{{"placement.wires.weights={nod=\"int8\"}"}, "placement.wires.weights: no level is named \"nod\""},
        Illegal{{"placement.hops=[[\"node\"], [\"package\"]]"},
                "placement.hops.weights: \"node\" comes where \"package\" is due"},
        Illegal{{"placement.hops={update=[[\"package\", \"system\"]]}"},
                "placement.hops.update: \"system\" comes where \"node\" is due"},
        Illegal{{"placement.preset=zero1", "placement.optimizer=all"},
                "cannot be given together with placement.preset"}));

TEST(Placement, LevelsOfAMachineFileAreLeftToIt) {
  const std::vector<std::string> sets = {"run.machine=mine",
                                         "placement={weights=\"rack\", gradients=\"rack\", optimizer=\"all\"}"};
  const Job job = parsed(small_file, sets);
  EXPECT_TRUE(level_names(job).empty());
  EXPECT_THAT(reaches(resolve_placement(job, std::vector<std::string>{"node", "rack", "hall"})),
              ElementsAre(2, 0, 2, 3));
  EXPECT_THROW(resolve_placement(job, usual), Error);
  // What can be known is still checked.
  EXPECT_THAT(refusal(small_file, {"run.machine=mine", "placement={weights=\"node\"}"}),
              HasSubstr("narrower than weights"));
  // mesh.levels is first in line.
  EXPECT_THAT(refusal(small_file, {"run.machine=mine", "mesh.levels=[2, 2, \"*\"]", "placement={optimizer=\"rack\"}"}),
              HasSubstr("no level is named \"rack\""));
}

TEST(Levels, AreGivenByTheMeshThenTheMachineFileThenOneHost) {
  const Job frontier = parsed(small_file, {"run.machine=frontier"});
  EXPECT_THAT(levels_of(frontier, 384),
              ElementsAre(machine::Level{"package", 2}, machine::Level{"node", 4}, machine::Level{"system", 48}));
  EXPECT_THROW(levels_of(frontier, 12), Error);
  EXPECT_EQ(levels_of(parsed(small_file, {"run.machine=frontier", "mesh.levels=[4, 2, 1]"}), 8)[0].width, 4);
  EXPECT_EQ(levels_of(parsed(small_file, {}), 3)[0].width, 3);
  try {
    levels_of(parsed(small_file, {"run.machine=fronteer"}), 8);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"frontier\""));
  }
}

}  // namespace
}  // namespace strata::job
