#pragma once
/*
 * template_words: the words allowed in a template's fields. They become words of commands that
 * root runs (apt-get, npm, pip): none may look like an option or contain white space. Each
 * function returns NULL if the word is fine, else a description of the expected word: "a package's
 * name".
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
