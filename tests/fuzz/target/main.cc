// The project's own fuzzer, for compilers without one: mutates the files of a corpus and calls the target.
// Takes the options of libFuzzer that `make fuzz` uses: remat_fuzz -runs=N -seed=S -dict=FILE CORPUS
#include <sanitizer/common_interface_defs.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/damage.h"
#include "remat/io.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using remat::Random;

std::string current;

/// The input that ended the process, for the next run.
void save_current() {
  std::ofstream("crash-input") << current;
  std::cerr << "the input is in crash-input\n";
}

struct Arguments {
  std::int64_t runs = 1000;
  std::uint64_t seed = 1;
  std::string dictionary;
  std::vector<std::string> corpus;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view one = argv[i];
    const auto value = [&] { return std::string(one.substr(one.find('=') + 1)); };
    if (one.starts_with("-runs="))
      arguments.runs = std::stoll(value());
    else if (one.starts_with("-seed="))
      arguments.seed = std::stoull(value());
    else if (one.starts_with("-dict="))
      arguments.dictionary = value();
    else if (!one.starts_with("-"))
      arguments.corpus.emplace_back(one);
  }
  return arguments;
}

std::vector<std::string> read_corpus(const std::vector<std::string>& folders) {
  std::vector<std::string> texts;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      texts.push_back(remat::read_file(entry.path()));
    }
  }
  return texts;
}

/// Lines of the form "word", with \" and \\ inside.
std::vector<std::string> read_dictionary(const std::string& path) {
  std::vector<std::string> words;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.size() < 2 || line.front() != '"') continue;
    std::string word;
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {
      if (line[i] == '\\') ++i;
      word += line[i];
    }
    words.push_back(word);
  }
  return words;
}

const std::string& any_of(const std::vector<std::string>& texts, Random& random) {
  return texts[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(texts.size())))];
}

void change(std::string& text, const std::vector<std::string>& words, Random& random) {
  if (words.empty() || random.chance(0.7)) return remat::fuzz::damage(text, random);
  const std::string& word = any_of(words, random);
  const auto at = static_cast<std::size_t>(
      random.below(static_cast<std::int64_t>(std::min<std::size_t>(text.size(), 200)) + 1));
  text.insert(at, random.chance(0.5) ? " " + word + " " : word);
}

int fuzz(const Arguments& arguments) {
  const std::vector<std::string> corpus = read_corpus(arguments.corpus);
  const std::vector<std::string> words = read_dictionary(arguments.dictionary);
  if (corpus.empty()) {
    std::cerr << "no corpus\n";
    return 64;
  }
  Random random(arguments.seed);
  for (std::int64_t run = 0; run < arguments.runs; ++run) {
    current = any_of(corpus, random);
    for (std::int64_t times = random.below(5); times > 0; --times) change(current, words, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
  }
  std::cerr << "Done " << arguments.runs << " runs\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  __sanitizer_set_death_callback(save_current);
  try {
    return fuzz(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "broken promise: " << error.what() << "\n";
    save_current();
    return 77;
  }
}
