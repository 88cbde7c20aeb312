// remat completion: scripts with which bash, zsh and fish complete command lines, made from the parser's own
// table of commands and options.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <sstream>

#include "commands.h"
#include "common.h"
#include "remat/planner.h"
#include "remat/words.h"

namespace remat::cli {
namespace {

struct Flag {
  std::vector<std::string> names;  ///< "--budget", "-b"
  std::string description;
  bool takes_value = false;
  std::vector<std::string> values;  ///< empty: any text or file
};

/// A command and what may follow it.
struct Entry {
  std::string place;  ///< " generate gpt"; the root's is empty
  std::string description;
  std::vector<std::pair<std::string, std::string>> words;  ///< subcommands or values, with descriptions
  std::vector<Flag> flags;
};

/// The words between braces in "{fixed,free}": see take_one_of().
std::vector<std::string> choices(const std::string& type) {
  const auto begin = type.rfind('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  std::istringstream list(type.substr(begin + 1, end - begin - 1));
  std::vector<std::string> values;
  for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  return values;
}

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const PlannerInfo& planner : planners()) names.emplace_back(planner.name);
  return names;
}

Flag flag_of(const CLI::Option& option) {
  Flag flag{
      {}, option.get_description(), option.get_items_expected_max() > 0, choices(option.get_type_name())};
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  const bool is_planner = std::ranges::any_of(
      flag.names, [](const std::string& name) { return name == "--planner" || name == "--planners"; });
  if (is_planner) flag.values = planner_names();
  return flag;
}

void collect(const CLI::App& app, const std::string& place, std::vector<Entry>& into) {
  Entry entry{place, app.get_description(), {}, {}};
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    entry.words.emplace_back(sub->get_name(), sub->get_description());
  }
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() || !option->get_lnames().empty()) {
      entry.flags.push_back(flag_of(*option));
    } else {
      for (const std::string& value : choices(option->get_type_name())) entry.words.emplace_back(value, "");
    }
  }
  into.push_back(std::move(entry));
  for (const CLI::App* sub : app.get_subcommands(nullptr)) collect(*sub, place + " " + sub->get_name(), into);
}

using Said = std::function<std::string(const std::string& name, const std::string& description)>;

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? "'\\''" : std::string(1, c == '\n' ? ' ' : c);
  return result + "'";
}

/// 'a'|'b', for a `case` of bash and zsh.
std::string patterns(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) all.push_back(quoted(text));
  return listed(all, "|");
}

std::vector<std::string> places(const std::vector<Entry>& entries) {
  std::vector<std::string> all;
  for (const Entry& entry : entries) {
    if (!entry.place.empty()) all.push_back(entry.place);
  }
  return all;
}

/// The part that bash and zsh share: finds the command of a line, and completes values of the option before.
/// `offer` completes with words.
std::string shared(const std::vector<Entry>& entries, const std::string& loop, const std::string& word,
                   const std::string& last, const std::string& offer) {
  std::string text = "  local place='' i\n  for " + loop + "; do\n    case \"$place " + word +
                     "\" in\n      " + patterns(places(entries)) + ") place=\"$place " + word +
                     "\" ;;\n    esac\n  done\n";
  text += "  case \"$place " + last + "\" in\n";
  std::vector<std::string> free;
  for (const Entry& entry : entries) {
    for (const Flag& flag : entry.flags) {
      if (!flag.takes_value) continue;
      std::vector<std::string> at;
      for (const std::string& name : flag.names) at.push_back(entry.place + " " + name);
      if (flag.values.empty()) {
        free.insert(free.end(), at.begin(), at.end());
      } else {
        text += "    " + patterns(at) + ") " + offer + " " + listed(flag.values, " ") + "; return ;;\n";
      }
    }
  }
  return text + "    " + patterns(free) + ") _remat_files; return ;;\n  esac\n";
}

/// "name:description" for _describe of zsh.
std::string described(const std::string& name, const std::string& description) {
  std::string text;
  for (char c : name) text += c == ':' ? "\\:" : std::string(1, c);
  return quoted(text + ":" + description);
}

/// The branches of a `case` that complete at a place: flags after a `-`, else words. `said`: a word with its
/// description; `begin` and `end` enclose them.
std::string branches(const std::vector<Entry>& entries, const Said& said, const std::string& begin,
                     const std::string& end) {
  std::string text;
  for (const Entry& entry : entries) {
    std::vector<std::string> flags, words;
    for (const Flag& flag : entry.flags) {
      for (const std::string& name : flag.names) flags.push_back(said(name, flag.description));
    }
    for (const auto& [word, description] : entry.words) words.push_back(said(word, description));
    text += "    " + quoted(entry.place + "|-") + "*) " + begin + listed(flags, " ") + end + " ;;\n";
    if (words.empty()) continue;
    text += "    " + quoted(entry.place + "|") + "*) " + begin + listed(words, " ") + end + " ;;\n";
  }
  return text;
}

std::string bash(const std::vector<Entry>& entries) {
  std::string text =
      "# Completion of remat for bash: source <(remat completion bash)\n"
      "_remat_offer() { COMPREPLY=($(compgen -W \"$*\" -- \"${COMP_WORDS[COMP_CWORD]}\")); }\n"
      "_remat_files() { local IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")); }\n"
      "_remat() {\n";
  text += shared(entries, "((i = 1; i < COMP_CWORD; i++))", "${COMP_WORDS[i]}", "${COMP_WORDS[COMP_CWORD-1]}",
                 "_remat_offer");
  text += "  case \"$place|${COMP_WORDS[COMP_CWORD]}\" in\n";
  const auto name_alone = [](const std::string& name, const std::string&) { return name; };
  text += branches(entries, name_alone, "_remat_offer ", "");
  return text + "    *) _remat_files ;;\n  esac\n}\ncomplete -o filenames -F _remat remat\n";
}

std::string zsh(const std::vector<Entry>& entries) {
  std::string text =
      "#compdef remat\n"
      "# Completion of remat for zsh: source <(remat completion zsh), or a file _remat in a folder of fpath\n"
      "_remat_offer() { compadd -- \"$@\" }\n_remat_files() { _files }\n"
      "_remat() {\n  local -a offered\n";
  text +=
      shared(entries, "((i = 2; i < CURRENT; i++))", "${words[i]}", "${words[CURRENT-1]}", "_remat_offer");
  text += "  case \"$place|${words[CURRENT]}\" in\n";
  text += branches(entries, described, "offered=(", ")");
  return text +
         "    *) _files; return ;;\n  esac\n  _describe remat offered\n}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _remat \"$@\"; else compdef _remat remat; "
         "fi\n";
}

std::string fish_flag(const std::string& condition, const Flag& flag) {
  std::string line = "complete -c remat -n " + condition;
  for (const std::string& name : flag.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!flag.values.empty()) {
    line += " -x -a " + quoted(listed(flag.values, " "));
  } else if (flag.takes_value) {
    line += " -r -F";
  }
  return line + " -d " + quoted(flag.description) + "\n";
}

std::string fish(const std::vector<Entry>& entries) {
  std::vector<std::string> known;
  for (const std::string& place : places(entries)) known.push_back(quoted(place));
  std::string text =
      "# Completion of remat for fish: remat completion fish | source\n"
      "function __remat_at\n  set -l place ''\n  for word in (commandline -opc)[2..-1]\n"
      "    if contains -- \"$place $word\" " +
      listed(known, " ") +
      "\n      set place \"$place $word\"\n    end\n  end\n  test \"$place\" = \"$argv[1]\"\nend\n";
  for (const Entry& entry : entries) {
    const std::string condition = quoted("__remat_at \"" + entry.place + "\"");
    for (const auto& [word, description] : entry.words) {
      text += "complete -c remat -n " + condition + " -f -a " + word + " -d " + quoted(description) + "\n";
    }
    for (const Flag& flag : entry.flags) text += fish_flag(condition, flag);
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* sub =
      app.add_subcommand("completion", "a script that completes command lines in bash, zsh or fish");
  take_one_of(*sub->add_option("SHELL", *shell, "bash, zsh or fish")->required(), {"bash", "zsh", "fish"});
  sub->callback([shell, &app, &action] {
    action = [shell, &app] {
      std::vector<Entry> entries;
      collect(app, "", entries);
      std::cout << (*shell == "bash" ? bash(entries) : *shell == "zsh" ? zsh(entries) : fish(entries));
      return kOk;
    };
  });
}

}  // namespace remat::cli
