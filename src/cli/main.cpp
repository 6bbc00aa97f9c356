#include "cli/verb.h"

int main(int argc, char** argv) { return strata::cli::run(argc, argv); }
