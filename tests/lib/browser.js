/* Helpers for the scripts of browser_js. */
const one = selector => document.querySelector(selector);
const text = selector => (one(selector) ? one(selector).textContent : null);
const seen = selector => Boolean(one(selector) && one(selector).checkVisibility());
/* The visible button or link of this text. */
const control = label => [...document.querySelectorAll('button, a')].find(b => b.checkVisibility() && b.textContent.trim() === label);
const press = label => control(label).click();
const pressInDialog = label => [...document.querySelectorAll('dialog button')].find(b => b.textContent === label).click();
const type = (selector, value) => {
    one(selector).value = value;
    one(selector).dispatchEvent(new Event('input', {bubbles: true}));
};
/* Looks whenever the page changes, and now and then: a size, an address or a flag is no change of the document. */
const until = condition => new Promise(resolve => {
    const holds = () => {
        try {
            return Boolean(condition());
        } catch {
            return false; /* it is not there yet */
        }
    };
    const look = isLast => {
        if (!isLast && !holds())
            return;
        observer.disconnect();
        clearInterval(often);
        clearTimeout(end);
        resolve(holds());
    };
    const observer = new MutationObserver(() => look(false));
    const often = setInterval(look, 100, false);
    const end = setTimeout(look, 20000, true);

    observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
    look(false);
});
const row = name => [...document.querySelectorAll('#boxes li')].find(li => li.querySelector('.name').textContent === name);
