/* Helpers for the scripts of browser_js. */
const one = selector => document.querySelector(selector);
const text = selector => (one(selector) ? one(selector).textContent : null);
const seen = selector => Boolean(one(selector) && one(selector).checkVisibility());
/* The visible button or link of this text. */
const control = label => [...document.querySelectorAll('button, a')].find(b => b.checkVisibility() && b.textContent.trim() === label);
const press = label => control(label).click();
const type = (selector, value) => {
    one(selector).value = value;
    one(selector).dispatchEvent(new Event('input', {bubbles: true}));
};
const until = async condition => {
    for (const end = performance.now() + 28000; performance.now() < end;) {
        try {
            if (condition())
                return true;
        } catch {
            /* it is not there yet */
        }
        await new Promise(resolve => setTimeout(resolve, 50));
    }
    return false;
};
const row = name => [...document.querySelectorAll('#boxes li')].find(li => li.querySelector('.name').textContent === name);
