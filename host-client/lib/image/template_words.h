#pragma once
/*
 * template_words: what may stand in a template's fields. All of it ends up as words of commands
 * that run as root (apt-get, npm, pip), so that none may look like an option or hold white space.
 * Each returns NULL when the word is fine, else what it should have been: "a package's name".
 */
const char *word_text(const char *word); /* 1 to 4095 bytes, no control characters but line ends */
const char *word_name(const char *word);
const char *word_version(const char *word);
const char *word_suite(const char *word);
const char *word_user(const char *word);
const char *word_dir(const char *word);
const char *word_package(const char *word);
const char *word_npm(const char *word);
const char *word_pip(const char *word);
const char *word_agent(const char *word);
const char *word_env(const char *word);
const char *word_glob(const char *word);
